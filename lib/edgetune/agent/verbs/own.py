# SPDX-License-Identifier: Apache-2.0
"""The host as a whole, and what is ours on it: ``reboot``, ``textfile`` and ``uninstall``."""

import os
import re
import time

from edgetune.agent.boot_hook import FOLLOWING, KEPT, NAME, BootHook, Textfile, agent_command
from edgetune.agent.congestion import KEEPER
from edgetune.agent.files import Directories
from edgetune.agent.host import COMPILED, EPOCH, LOCK, RESERVE, SOURCE, Host, room_or_not
from edgetune.agent.journal import Journals
from edgetune.agent.kinds import probe_hook
from edgetune.agent.protocol import Json, Refused, Request, Unsupported
from edgetune.agent.vocabulary.grammar import DIRECTORY, LINE
from edgetune.agent.vocabulary.places import (
    ACCESS_LOG_TOLD,
    AGENT,
    BIRD_NOTE,
    CONGESTION,
    CONGESTION_EPOCH,
    FLAG_NOTE,
    HOOKS,
    NOT_READY,
    PREFIX_FILE_TOLD,
    SETUP,
    STATE,
    UNIT,
)

REBOOT_MARK = "/run/edgetune-reboot"
REBOOT_AGAIN = 60.0
TUNINGS = STATE + "/tunings"
# In this order: the hook before what it runs, and last what fences other requests.
OURS = (
    *HOOKS,
    *(AGENT, SOURCE, COMPILED, RESERVE, KEPT, PREFIX_FILE_TOLD),
    *(FOLLOWING, REBOOT_MARK, KEEPER, BIRD_NOTE, FLAG_NOTE, ACCESS_LOG_TOLD),
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
        told = [f"{kept}/{NAME}"] if kept else []
        drafts = [f"{STATE}/{name}" for name in host.names(STATE) if _DRAFT.fullmatch(name)]
        names = [*OURS, *told, Directories.FILE, *drafts, *LAST]
        files = [name for name in names if host.exists(name)]
        tunings = sorted([*(own.tuning for own in journals.all()), *journals.damaged()])
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


def reboot(host: Host, request: Request) -> Json:
    """Reboot, while the host is still in the boot that was meant.

    Asked again at once it does nothing; asked again later in the same boot, it sends the command
    once more: the first may have died with the agent, or have been lost. That is no second reset.
    The boot_id is compared here, on the host, and what is started then dies with this boot, as
    everything does that could still send the command: no later boot ever sees it.
    """
    epoch = request.epoch()
    drained = request.flag("drained", default=False)
    boot_id = request.text("boot_id", LINE)
    request.done()
    with host.lock():
        host.refuse_in_service(drained)
        host.fence(epoch)
        now = host.boot_id
        meant = boot_id == now
        if meant and not _sent_just_now(host):
            # The reply goes out first. Never by kexec: the BIOS must run.
            code = "import os, sys, time; time.sleep(0.3); os.execv(sys.argv[1], sys.argv[1:])"
            words = host.reboot_command
            program = host.program(words[0])
            if program is None:
                raise Refused(f"there is no program {words[0]}")
            command = [program, *words[1:]]
            host.detach([agent_command("")[0], "-I", "-S", "-c", code, *command])
            with room_or_not():
                mark = f"{now} {time.monotonic():.3f}\n"
                host.replace(REBOOT_MARK, mark.encode(), 0o600)
        return {"rebooting": meant}


def _sent_just_now(host: Host) -> bool:
    """Whether this boot's end was asked for less than ``REBOOT_AGAIN`` s ago."""
    boot_id, _, sent = host.text(REBOOT_MARK).partition(" ")
    if boot_id != host.boot_id or not re.fullmatch(r"[0-9]+\.[0-9]+", sent):
        return False
    return time.monotonic() - float(sent) < REBOOT_AGAIN


def textfile(host: Host, request: Request) -> Json:
    """Keep the file ``edgetune.prom`` in the ``directory`` of this host; with "" no more.

    The boot hook writes it at each boot. ``missing`` says why the file is not there, and is "" when
    it is. That is no failure: on a host whose init is not known nothing is written, nor where there
    is no such directory.
    """
    directory = request.text("directory", f"({DIRECTORY})?")
    request.done()
    with host.lock():
        missing = _obstacle(host, directory) if directory else ""
        try:
            Textfile(host).keep("" if missing else directory)
            told = BootHook(host).sync()
        except OSError as error:
            missing, told = str(error), ""
        return {"missing": missing or told}


def _obstacle(host: Host, directory: str) -> str:
    try:
        probe_hook(host)
    except Unsupported as why:
        return str(why)
    there = os.path.isdir(host.path(directory))
    return "" if there else f"this host has no directory {directory}"
