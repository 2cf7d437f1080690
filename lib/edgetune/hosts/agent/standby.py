# SPDX-License-Identifier: Apache-2.0
"""The boot hook and the revert timer: what acts when nobody is connected."""

import os
import shlex
import sys
import time
from typing import Iterator, List, Optional, Sequence

from edgetune.hosts.agent.bundle import own_source
from edgetune.hosts.agent.files import Directories
from edgetune.hosts.agent.host import AGENT, RESERVE, Host
from edgetune.hosts.agent.journal import Journal, Journals
from edgetune.hosts.agent.protocol import Unsupported
from edgetune.vocabulary.places import INIT_SCRIPT, STATE, UNIT, UNIT_LINK
from edgetune.vocabulary.values import Target, Value

# There while the rest of a boot is still to be set.
FOLLOWING = "/run/edgetune-late"
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
Type=oneshot
TimeoutStartSec=180
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


def agent_command(prefix: str, *arguments: str) -> List[str]:
    """The command that runs our copy on disk; isolated, so no environment can change it."""
    return [sys.executable or "/usr/bin/python3", "-I", "-S", prefix + AGENT, *arguments]


class BootHook:
    """Runs ``agent.py boot`` at each boot, before the network is used."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._directories = Directories(host)

    def probe(self) -> None:
        """Unsupported when this host's init is none that we know."""
        if self._host.init == "other":
            raise Unsupported(
                "nothing can keep it over a boot: no systemd, nothing runs /etc/init.d/S??*"
            )

    @property
    def files(self) -> Sequence[str]:
        """Its files on a host with this init, beside our copy."""
        return {"systemd": (UNIT, UNIT_LINK), "sysv": (INIT_SCRIPT,)}.get(self._host.init, ())

    def installed(self) -> bool:
        """Whether the next boot will run it."""
        files = self.files
        return bool(files) and all(self._host.exists(name) for name in (*files, AGENT))

    def sync(self) -> None:
        """Be there when a journal needs it, and be gone without a trace when none does.

        Our copy on disk stays with the last journal: a person can take a tuning back with it.
        """
        journals, damaged = Journals(self._host).all(), Journals(self._host).damaged()
        standing = bool(journals or damaged)
        if not standing:
            self._host.remove(RESERVE)
        if damaged or any(journal.needs_boot for journal in journals):
            self.install()
        else:
            for name in (UNIT_LINK, UNIT, INIT_SCRIPT):
                self._host.remove(name)
        if standing:
            self._stay()
        else:
            self._host.remove(AGENT)
        self._directories.prune()

    def install(self) -> None:
        """Be there at the next boot, if this host's init is one that we know."""
        self._stay()
        if self._host.init == "systemd":
            command = " ".join(agent_command("", "boot"))
            self._directories.make(os.path.dirname(UNIT_LINK))
            self._put(UNIT, UNIT_TEXT.format(command=command).encode(), 0o644)
            self._link()
        elif self._host.init == "sysv":
            python, *rest = agent_command("", "boot")
            command = f'{shlex.quote(python)} -I -S "$EDGETUNE_ROOT{AGENT}" {rest[-1]}'
            self._put(INIT_SCRIPT, INIT_TEXT.format(command=command).encode(), 0o755)

    def _stay(self) -> None:
        self._host.make_directory(STATE, 0o700)
        # A journal that is damaged to us may be one of another version, whose agent can read it.
        if not (self._host.exists(AGENT) and Journals(self._host).damaged()):
            self._put(AGENT, own_source(), 0o700)

    def _put(self, name: str, data: bytes, mode: int) -> None:
        if not self._host.holds(name, data):
            self._host.write(name, data, mode)

    def _link(self) -> None:
        if not self._host.exists(UNIT_LINK):
            with self._host.directory(os.path.dirname(UNIT_LINK)) as directory:
                directory.link(os.path.basename(UNIT_LINK), "../" + os.path.basename(UNIT))


def kept(host: Host, kind: str, target: Target) -> Iterator[Value]:
    """The values that journals keep of one setting, in the order of application."""
    for journal in Journals(host).all():
        for entry in journal.entries if journal.state != "restoring" else []:
            setting = entry.setting
            if entry.stored and (setting.kind, setting.target) == (kind, target):
                yield setting.value


def set_deadline(host: Host, journal: Journal) -> None:
    """Let it be ``confirm_within`` seconds from now; to be saved before the timer is armed."""
    end = time.monotonic() + journal.confirm_within
    journal.deadline = {"boot_id": host.boot_id, "monotonic": end}


def arm_timer(host: Host, journal: Journal) -> None:
    """Let a tuning be taken back at its deadline, whatever happens to us."""
    command = agent_command(host.path("/").rstrip("/"), "revert", journal.tuning)
    if host.init == "systemd":
        disarm_timer(host, journal)
        when = [f"--on-active={journal.confirm_within:g}s", "--timer-property=AccuracySec=1s"]
        # The timer waits for sysinit.target, which at a boot may wait for us.
        unit = ["--no-block", f"--unit={_timer_unit(journal)}"]
        host.run("systemd-run", *unit, *when, "--", *command)
    else:
        host.detach(command)


def follow_up(host: Host) -> None:
    """Let our copy on disk set the rest again, once interfaces are up and routes are there."""
    host.write(FOLLOWING, b"")
    command = agent_command(host.path("/").rstrip("/"), "late")
    try:
        if host.init == "systemd":
            host.run("systemd-run", "--no-block", "--unit=edgetune-late", "--", *command)
        else:
            host.detach(command)
    except Exception:
        # Nobody is to wait for what does not come.
        host.remove(FOLLOWING)
        raise


def disarm_timer(host: Host, journal: Journal) -> None:
    """Forget the timer; one that fires all the same finds nothing to do."""
    if host.init == "systemd" and journal.confirm_within and host.program("systemctl"):
        host.attempt("systemctl", "reset-failed", _timer_unit(journal) + ".service")
        host.attempt("systemctl", "stop", _timer_unit(journal) + ".timer")


def time_left(host: Host, journal: Optional[Journal]) -> Optional[float]:
    """Seconds until a tuning is taken back; None when that is not for a timer of this boot."""
    if journal is None or not journal.provisional:
        return None
    if journal.deadline.get("boot_id") != host.boot_id:
        return None
    return max(float(journal.deadline["monotonic"]) - time.monotonic(), 0.0)


def _timer_unit(journal: Journal) -> str:
    return f"edgetune-revert-{journal.tuning}"
