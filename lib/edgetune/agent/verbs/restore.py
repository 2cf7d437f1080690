# SPDX-License-Identifier: Apache-2.0
"""``restore``: take a tuning back."""

from edgetune.agent.boot_hook import BootHook
from edgetune.agent.host import Host, room_or_not
from edgetune.agent.journal import Journals
from edgetune.agent.protocol import TUNING, Json, Request
from edgetune.agent.undo import Undone, take_back, take_back_live
from edgetune.agent.vocabulary.grammar import LINE


def run(host: Host, request: Request) -> Json:
    """Take a tuning back from the journal; safe to repeat.

    With ``rollout`` only what that rollout did: another one's change is not ours to take back.
    With ``live`` only the runtime values of the settings it names; see `take_back_live`.
    """
    epoch = request.epoch()
    drained = request.flag("drained", default=False)
    tuning = request.text("tuning", TUNING)
    rollout = request.optional("rollout", LINE)
    live = request.texts("live")
    request.done()
    with host.lock():
        host.refuse_in_service(drained)
        # Nobody with an older epoch can write what this one cannot.
        with room_or_not():
            host.fence(epoch)
        journal = Journals(host).load(tuning)
        if journal is None:
            # What an agent may have left that was killed at its very first or last step.
            Journals(host).forget(tuning)
            BootHook(host).sync()
        ours = journal if journal and rollout in (None, journal.rollout) else None
        undone = Undone(False, [], [])
        if ours is not None and live is None:
            undone = take_back(host, ours)
        elif ours is not None and live is not None:
            known = [entry.setting.id for entry in ours.entries]
            for index, name in enumerate(live):
                if name not in known:
                    raise request.wrong(f"live[{index}]", f"is no setting of {ours.tuning} here")
            undone = take_back_live(host, ours, live)
        return dict(undone._asdict(), nothing_to_restore=ours is None)
