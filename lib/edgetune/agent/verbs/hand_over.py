# SPDX-License-Identifier: Apache-2.0
"""``hand_over``: leave a tuning's effect to the host's own people, without anything of ours."""

from edgetune.agent.hand_over import finish, hand_over, obstacles, renamed
from edgetune.agent.host import Host
from edgetune.agent.journal import Journals
from edgetune.agent.observe import observe_all
from edgetune.agent.protocol import DIGEST, TUNING, Json, Refused, Request, read_epoch
from edgetune.agent.settings import read_settings
from edgetune.agent.vocabulary.grammar import LINE
from edgetune.agent.vocabulary.places import NOT_READY


def run(host: Host, request: Request) -> Json:
    """Rename the files that keep a tuning, without our marks, and forget it; safe to repeat.

    ``files`` says by the name of each file its new one; also with ``dry_run``, which changes
    nothing. Where the tuning does not stand (``found`` is False), ``wrong`` says which settings are
    not as wanted now and after a boot. Refused, with all that is in the way, where anything would
    not be kept.
    """
    epoch = read_epoch(request)
    dry_run = request.flag("dry_run")
    tuning = request.text("tuning", TUNING)
    digest = request.text("digest", DIGEST)
    rollout = request.text("rollout", LINE)
    settings = read_settings(request)
    request.done()
    with host.lock():
        if not dry_run:
            host.fence(epoch)
        if not host.ready:
            raise Refused(f"{host.text(NOT_READY, 'a rollout')} has drained this host")
        for why in Journals(host).damaged().values():
            raise Refused(why)
        journal = Journals(host).load(tuning)
        if journal is None:
            if not dry_run:
                finish(host, tuning, settings)
            rows = observe_all(host, settings, tuning)
            wrong = [f"{row.setting.id} {row.reason}" for row in rows if not row.as_wanted]
            return {"files": {}, "found": False, "wrong": wrong, "boot_id": host.boot_id}
        if (journal.rollout, journal.digest) != (rollout, digest):
            own = f"{journal.rollout}, digest {journal.digest}"
            raise Refused(f"{tuning} stands here by {own}, and not by {rollout}, digest {digest}")
        files = renamed(host, journal)
        found = list(dict.fromkeys(obstacles(host, journal, files)))
        if found:
            raise Refused("; ".join(found))
        if not dry_run:
            hand_over(host, journal, files)
        told = {name: own.name for name, own in files.items()}
        return {"files": told, "found": True, "wrong": [], "boot_id": host.boot_id}
