# SPDX-License-Identifier: Apache-2.0
"""``confirm``: keep a provisional change."""

from typing import Optional, Sequence

from edgetune.agent.boot_hook import BootHook, disarm_timer
from edgetune.agent.change import commit, tried
from edgetune.agent.drift import drifted
from edgetune.agent.host import Host
from edgetune.agent.journal import UNSETTLED, Journal, Journals
from edgetune.agent.observe import read_settings
from edgetune.agent.protocol import DIGEST, TUNING, Failed, Json, Refused, Request
from edgetune.agent.verbs.verify import verify_settings
from edgetune.agent.vocabulary.kinds import Setting


def run(host: Host, request: Request) -> Json:
    """Keep a change that verifies; the revert timer finds it confirmed, or was there first."""
    epoch = request.epoch()
    tuning = request.text("tuning", TUNING)
    digest = request.optional("digest", DIGEST)
    settings = read_settings(request)
    request.done()
    with host.lock():
        host.fence(epoch)
        journal = Journals(host).load(tuning)
        if journal:
            _refuse_another(journal, digest, settings)
        result = verify_settings(host, tuning, settings)
        if journal and journal.state == "provisional" and result.verified and tried(journal):
            # Other tunings have to stand on another kernel, too: names and queues may have moved.
            rows = [row for row in drifted(host) if row["tuning"] != journal.tuning]
            if rows:
                what = "; ".join("{tuning}: {id} {reason}".format(**row) for row in rows[:3])
                raise Failed(f"other tunings do not stand on this kernel: {what}")
            commit(host, journal)
            # From here on each setting has to be kept as well.
            result = verify_settings(host, tuning, settings)._replace(state="confirmed")
        kept = journal is not None and journal.state not in UNSETTLED and result.verified
        if kept and journal is not None and journal.state != "confirmed":
            journal.state = "confirmed"
            # Else a timer that is still running would end a later restore of single settings.
            journal.deadline = None
            Journals(host).save(journal)
            disarm_timer(host, journal)
            BootHook(host).sync()
        state = journal.state if journal else "none"
        return dict(result.document(), confirmed=kept, state=state)


def _refuse_another(journal: Journal, digest: Optional[str], settings: Sequence[Setting]) -> None:
    """Nothing is to be kept that was not looked at."""
    if digest not in (None, journal.digest):
        raise Refused(f"{journal.tuning} stands here with another digest: {journal.digest}")
    asked = {setting.id for setting in settings}
    differing = asked ^ {entry.setting.id for entry in journal.entries}
    if differing:
        what = ", ".join(sorted(differing))
        raise Refused(f"{journal.tuning} stands here with other settings: {what}")
