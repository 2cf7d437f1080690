# SPDX-License-Identifier: Apache-2.0
"""The boot hook, which runs at each boot and sets again what nothing else keeps.

And the revert timer, which takes a tuning back that nobody confirms in time; and what this host
tells of itself through the textfile collector of Prometheus' node_exporter.
"""

import contextlib
import os
import re
import shlex
import time
from typing import List, Optional, Sequence

from edgetune.agent import bundle
from edgetune.agent.disk import NEW_FILE, opened
from edgetune.agent.files import Directories
from edgetune.agent.host import COMPILED, RESERVE, SOURCE, Host, room_or_not
from edgetune.agent.journal import UNSETTLED, Deadline, Entry, Journal, Journals
from edgetune.agent.kinds import PYTHON, handler_on
from edgetune.agent.protocol import TUNING, Refused
from edgetune.agent.vocabulary.places import (
    AGENT,
    CONGESTION,
    INIT_SCRIPT,
    RC_SCRIPT,
    STATE,
    UNIT,
    UNIT_LINK,
)

KEPT = STATE + "/textfile"
"""Holds the directory that the file is kept in."""
NAME = "edgetune.prom"
BOOT_ID = "[0-9A-Za-z-]{1,100}"
BOOT = "edgetune_boot_info", "The boot that this host runs, by the boot_id of its kernel."
APPLIED = "edgetune_applied_info", "A tuning of edgetune that stands here, wholly or in part."


class Textfile:
    """The file ``edgetune.prom`` in a directory of the host, while it is kept."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def directory(self) -> str:
        """Where it is kept; "" while it is not."""
        try:
            return self._host.kept(KEPT)[0].decode().strip()
        except (OSError, Refused, UnicodeDecodeError):
            return ""

    def keep(self, directory: str) -> None:
        """Keep it there from now on; with "" no more. It is written next. OSError as it comes."""
        was = self.directory
        if was and was != directory:
            with contextlib.suppress(FileNotFoundError):
                self._remove(was)
        if not directory:
            self._host.remove(KEPT)
        elif was != directory:
            self._host.make_directory(STATE, 0o700)
            self._host.write(KEPT, directory.encode() + b"\n", 0o600)

    def write(self, tunings: Sequence[str]) -> str:
        """Write it anew with the ``tunings`` that stand; why it is not there, "" when it is.

        One that cannot be replaced is removed where that is possible: it may tell of another boot.
        """
        directory = self.directory
        if not directory:
            return ""
        try:
            with opened(self._host.root, directory, shared=True) as place:
                place.replace(NAME, text(self._host.boot_id, tunings).encode(), NEW_FILE)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._remove(directory)
            return f"{directory}/{NAME}: {error.strerror}"
        return ""

    def _remove(self, directory: str) -> None:
        with opened(self._host.root, directory, shared=True) as place:
            place.remove(NAME)


def text(boot_id: str, tunings: Sequence[str]) -> str:
    """The file. What Prometheus could not read is left out: it would take the rest along."""
    boots = [f'boot_id="{boot_id}"'] if re.fullmatch(BOOT_ID, boot_id) else []
    applied = [f'tuning="{name}"' for name in tunings if re.fullmatch(TUNING, name)]
    return _metric(*BOOT, boots) + _metric(*APPLIED, applied)


def _metric(name: str, means: str, labels: Sequence[str]) -> str:
    head = f"# HELP {name} {means}\n# TYPE {name} gauge\n" if labels else ""
    return head + "".join(f"{name}{{{each}}} 1\n" for each in labels)


# There while the rest of a boot is still to be set.
FOLLOWING = "/run/edgetune-late"
# The network waits for the first part alone, which ends with a notification. Each part has its
# own limit of time.
UNIT_TEXT = """\
[Unit]
Description=edgetune: settings that nothing else keeps over a boot
DefaultDependencies=no
RequiresMountsFor=/var/lib/edgetune
After=local-fs.target systemd-sysctl.service systemd-modules-load.service
Wants=network-pre.target
Before=network-pre.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=notify
TimeoutStartSec=180
RuntimeMaxSec=900
ExecStart={command}

[Install]
WantedBy=multi-user.target
"""


INIT_TEXT = """\
#!/bin/sh
# edgetune: settings that nothing else keeps over a boot
[ "$1" = start ] || exit 0
exec {command}
"""


# rc(8) may run it in a shell of its own, or in its own shell: so it neither execs nor exits. In the
# background timeout(1) would wait for the revert timers, too.
RC_TEXT = """\
#!/bin/sh
# edgetune: settings that nothing else keeps over a boot
#
# PROVIDE: edgetune
# REQUIRE: FILESYSTEMS random sysctl
# BEFORE: netif
# KEYWORD: nojail

. /etc/rc.subr

name=edgetune
start_cmd=edgetune_start
stop_cmd=:

edgetune_start()
{{
    # In a boot environment that is booted by hand later there may be nothing to run.
    [ -f "$EDGETUNE_ROOT{agent}" ] || return 0
    timeout --foreground -k 10 180 {command}
}}

load_rc_config $name
run_rc_command "$1"
"""


def agent_command(prefix: str, *arguments: str) -> List[str]:
    """The command that runs our copy on disk; isolated, so no environment can change it."""
    return [PYTHON, "-I", "-S", prefix + AGENT, *arguments]


SCRIPTS = {"sysv": (INIT_SCRIPT, INIT_TEXT), "rc": (RC_SCRIPT, RC_TEXT)}
HOOKS = {"linux": (UNIT_LINK, UNIT, INIT_SCRIPT), "freebsd": (RC_SCRIPT,)}
"""What may have been installed, by the system of a host: its init may have been another one."""


class BootHook:
    """Runs ``agent.py boot`` at each boot, before the network is used."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._journals = Journals(host)
        self._directories = Directories(host)

    def sync(self) -> str:
        """Be there when a journal, the text file or prefixes need it; else be gone without a trace.

        Our copy on disk stays with the last journal, since a person can take a tuning back with
        it. The text file is written, too; why it is not there comes back, "" when it is or need
        not be.
        """
        journals, damaged = self._journals.read()
        textfile = Textfile(self._host)
        telling = bool(textfile.directory)
        standing = bool(journals or damaged)
        if not standing:
            self._host.remove(RESERVE)
        treating = self._host.exists(CONGESTION)
        works = any(_has_work(self._host, journal) for journal in journals)
        if telling or damaged or treating or works:
            self.install()
        else:
            for name in HOOKS[self._host.system]:
                self._host.remove(name)
        if standing or telling or treating:
            self._stay()
            if not self._host.booting:
                self._keep_compiled()
        else:
            for name in (AGENT, SOURCE, COMPILED):
                self._host.remove(name)
        self._directories.prune()
        return textfile.write([*(journal.tuning for journal in journals), *damaged])

    def install(self) -> None:
        """Be there at the next boot, if this host's init is one that we know."""
        self._stay()
        if self._host.init == "systemd":
            command = " ".join(agent_command("", "boot"))
            self._directories.make(os.path.dirname(UNIT_LINK))
            self._put(UNIT, UNIT_TEXT.format(command=command).encode(), 0o644)
            if not self._host.exists(UNIT_LINK):
                with self._host.directory(os.path.dirname(UNIT_LINK)) as directory:
                    directory.link(os.path.basename(UNIT_LINK), "../" + os.path.basename(UNIT))
        elif self._host.init in SCRIPTS:
            file, text = SCRIPTS[self._host.init]
            python, *rest = agent_command("", "boot")
            command = f'{shlex.quote(python)} -I -S "$EDGETUNE_ROOT{AGENT}" {rest[-1]}'
            self._directories.make(os.path.dirname(file))
            self._put(file, text.format(command=command, agent=AGENT).encode(), 0o755)

    def _stay(self) -> None:
        self._host.make_directory(STATE, 0o700)
        # A journal that is damaged to us may be one of another version, whose agent can read it.
        if not (self._host.exists(AGENT) and self._journals.damaged()):
            # In this order: the agent.py of versions before 0.11 holds its text itself.
            self._put(SOURCE, bundle.own_source(), 0o600)
            self._put(AGENT, bundle.copy_runner(), 0o700)

    def _keep_compiled(self) -> None:
        """Spare boots and requests the compiling, if this disk has room for that."""
        with room_or_not():
            code = bundle.compiled_copy(self._host.path(COMPILED))
            if code:
                self._host.replace(COMPILED, code, 0o600)

    def _put(self, name: str, data: bytes, mode: int) -> None:
        if not self._host.holds(name, data):
            self._host.write(name, data, mode)


def _has_work(host: Host, journal: Journal) -> bool:
    """Whether there is something to do at a boot for a tuning."""
    half_done = journal.provisional or journal.state in UNSETTLED
    return half_done or any(entry.stored and by_hook(host, entry) for entry in journal.entries)


def by_hook(host: Host, entry: Entry) -> bool:
    """Whether it takes the boot hook to keep this setting over a reboot."""
    return handler_on(host, entry.setting.kind).kept_by_hook(entry.setting.target)


def follow_up(host: Host) -> None:
    """Let the rest be set again once interfaces are up and routes are there.

    By this process, where systemd waits for no more than `let_go`, else by one of its own.
    """
    host.write(FOLLOWING, b"")
    if host.init == "systemd":
        return
    try:
        host.detach(agent_command(host.path("/").rstrip("/"), "late"))
    except Exception:
        # Nobody is to wait for what does not come.
        host.remove(FOLLOWING)
        raise


def let_go() -> None:
    """Tell systemd that what waits for the boot hook may begin, as sd_notify(3) does.

    OSError where the message cannot be sent; nothing without a systemd that waits.
    """
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if address:
        import socket

        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
            # A name that begins with "@" is in the abstract namespace.
            notifier.connect(address.replace("@", "\0", 1) if address[0] == "@" else address)
            notifier.sendall(b"READY=1")


def set_deadline(host: Host, journal: Journal) -> None:
    """Let it be ``confirm_within`` seconds from now; to be saved before the timer is armed."""
    end = time.monotonic() + journal.confirm_within
    journal.deadline = Deadline(host.boot_id, end)


def arm_timer(host: Host, journal: Journal) -> None:
    """Let a tuning be taken back at its deadline, whatever happens to us."""
    command = agent_command(host.path("/").rstrip("/"), "revert", journal.tuning)
    if host.init == "systemd":
        # Its name has to be free, so the stop is waited for.
        _forget_units(host, journal, "stop")
        when = [f"--on-active={journal.confirm_within:g}s", "--timer-property=AccuracySec=1s"]
        # The timer waits for sysinit.target, which at a boot may wait for us.
        unit = ["--no-block", f"--unit={_timer_unit(journal)}"]
        host.run("systemd-run", *unit, *when, "--", *command)
    else:
        host.detach(command)


def disarm_timer(host: Host, journal: Journal) -> None:
    """Forget the timer; one that fires all the same finds nothing to do."""
    # After a reload of systemd a stop that is waited for leaves complaints about a missing file.
    _forget_units(host, journal, "--no-block", "stop")


def _forget_units(host: Host, journal: Journal, *stop: str) -> None:
    if host.init != "systemd" or not journal.confirm_within or not host.program("systemctl"):
        return
    for suffix, words in ((".service", ("reset-failed",)), (".timer", stop)):
        unit = _timer_unit(journal) + suffix
        # systemd complains in its journal of a unit that it does not know, too.
        known = host.attempt("systemctl", "show", "-p", "LoadState", unit)[1]
        if known.strip() == "LoadState=loaded":
            host.attempt("systemctl", *words, unit)


def time_left(host: Host, journal: Optional[Journal]) -> Optional[float]:
    """Seconds until a tuning is taken back; None when that is not for a timer of this boot."""
    deadline = journal.deadline if journal and journal.provisional else None
    if not deadline or deadline.boot_id != host.boot_id:
        return None
    return max(deadline.monotonic - time.monotonic(), 0.0)


def _timer_unit(journal: Journal) -> str:
    return f"edgetune-revert-{journal.tuning}"
