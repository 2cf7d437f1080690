# SPDX-License-Identifier: Apache-2.0
"""The revert timer: takes a tuning back that nobody confirms in time."""

import time
from typing import Optional

from edgetune.agent.boot_hook import agent_command
from edgetune.agent.host import Host
from edgetune.agent.journal import Deadline, Journal


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
