# SPDX-License-Identifier: Apache-2.0
"""``uninstall``: everything that is ours on a host, and its removal."""

import re

from edgetune.agent.boot_hook import FOLLOWING, KEPT, NAME, Textfile
from edgetune.agent.congestion import KEEPER
from edgetune.agent.files import Directories
from edgetune.agent.host import COMPILED, EPOCH, LOCK, RESERVE, SOURCE, Host
from edgetune.agent.journal import Journals
from edgetune.agent.protocol import Json, Refused, Request
from edgetune.agent.verbs.reboot import REBOOT_MARK
from edgetune.agent.vocabulary.places import (
    ACCESS_LOG_COUNTS,
    ACTIVE_LOG,
    ACTIVE_NOTE,
    AGENT,
    BIRD_NOTE,
    CONGESTION,
    CONGESTION_EPOCH,
    FLAG_NOTE,
    HOOKS,
    NOT_READY,
    PREFIX_FILE_NOTE,
    SETUP,
    STATE,
    UNIT,
)

TUNINGS = STATE + "/tunings"
# In this order: the hook before what it runs, and last what fences other requests.
OURS = (
    *HOOKS,
    *(AGENT, SOURCE, COMPILED, RESERVE, KEPT, PREFIX_FILE_NOTE),
    *(FOLLOWING, REBOOT_MARK, KEEPER, BIRD_NOTE, FLAG_NOTE),
    *(ACCESS_LOG_COUNTS, ACTIVE_LOG, ACTIVE_NOTE),
)
LAST = (CONGESTION_EPOCH, EPOCH)
_DRAFT = re.compile(r"\..+\.edgetune(-[0-9a-f]{16})?")


def uninstall(host: Host, request: Request) -> Json:
    """Remove everything that is ours, and nothing else; safe to repeat.

    ``files`` are those that were there, also with ``dry_run``, which removes none. ``left`` is what
    stays because it is not ours: what others put into our directory, and what the host's own people
    say to us, and ``tunings`` are those that stand. Refused while anything is to be taken back,
    which this does not do: a tuning (not with ``dry_run``), the congestion control of client
    prefixes, a drain.
    """
    epoch = request.epoch()
    dry_run = request.flag("dry_run")
    request.done()
    with host.lock():
        if host.exists(CONGESTION):
            raise Refused("the congestion control of client prefixes stands here")
        if not host.ready:
            rollout = host.text(NOT_READY, "a rollout")
            raise Refused(f"{rollout} has drained this host: it has {NOT_READY}")
        kept, journals = Textfile(host).directory, Journals(host)
        copies = [f"{kept}/{NAME}"] if kept else []
        drafts = [f"{STATE}/{name}" for name in host.names(STATE) if _DRAFT.fullmatch(name)]
        names = [*OURS, *copies, Directories.FILE, *drafts, *LAST]
        files = [name for name in names if host.exists(name)]
        tunings = sorted([*(journal.tuning for journal in journals.all()), *journals.damaged()])
        if not dry_run:
            if epoch < host.epoch():
                text = f"epoch {epoch} is older than {host.epoch()}, which this host has seen"
                raise Refused(text)
            if tunings:
                raise Refused(f"tunings stand here: {', '.join(tunings)}")
            _remove(host)
        others = [f"{STATE}/{name}" for name in host.names(STATE)] if host.exists(STATE) else []
        left = [name for name in others if not dry_run or name not in (*files, TUNINGS)]
        left = [*left, *([SETUP] if host.exists(SETUP) else [])]
        reply: Json = {"files": files, "left": left, "tunings": tunings}
        if not dry_run:
            # Whoever waits for the lock sees that this one is gone, and takes the next.
            host.remove(LOCK)
        return reply


def _remove(host: Host) -> None:
    had_unit = host.exists(UNIT)
    Textfile(host).keep("")
    for name in OURS:
        host.remove(name)
    if had_unit and host.init == "systemd":
        host.attempt("systemctl", "daemon-reload")
    # Of our files they are empty by now.
    Directories(host).prune()
    # Those that others, or what was handed over, need by now are the host's own.
    host.remove(Directories.FILE)
    for name in host.names(STATE):
        if _DRAFT.fullmatch(name):
            host.remove(f"{STATE}/{name}")
    for name in LAST:
        host.remove(name)
    for directory in (TUNINGS, STATE):
        if host.exists(directory) and not host.names(directory):
            host.remove_directory(directory)
