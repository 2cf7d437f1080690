# SPDX-License-Identifier: Apache-2.0
"""When a host takes a change back by itself that nobody confirmed over a new connection.

A change to the network can cut a host off, so the agent waits for a confirmation only as long as
this module says. Until then an unreachable host may come back, and a rollback waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.base import clock
from edgetune.base.durations import utc
from edgetune.rollout.record.rollout import Record

if TYPE_CHECKING:
    from edgetune.base.documents.batch import Batch, HostStep
    from edgetune.base.documents.settings import HostSetting
    from edgetune.net.result import HostResult

APPLY_TIMEOUT = 120
# What the hosts that are asked at once take for an apply, the workflow engine to get to the next
# step, and the hosts to connect, to be connected to from many ports, and to verify, in seconds.
_ROUND = 80.0
# A reboot comes before the confirmation, and the BIOS of each host is proven after it.
_AFTER_REBOOT = 300.0
# What the host needs to take its change back, and for its network to come up again.
_MARGIN = 60.0
INSTALL_TIMEOUT = 480
"""Of an apply that installs a kernel: dpkg and its hooks may take minutes."""


def can_cut_off(settings: Iterable[HostSetting]) -> bool:
    """Whether settings can take a host off the network."""
    return any(KINDS[own.kind].can_cut_off(own.target) for own in settings)


def apply_timeout(opened: Record) -> int:
    """How long a host may take to apply the tuning, in seconds."""
    profiles = opened.plan.profiles
    installs = any(own.kind == "kernel.package" for each in profiles for own in each.settings)
    return INSTALL_TIMEOUT if installs else APPLY_TIMEOUT


def _way_back(opened: Record) -> float:
    """How long a host takes to take its change back: a kernel goes with another boot."""
    return _MARGIN + (opened.config.reboot_deadline if opened.plan.tries_boots else 0)


def confirm_window(opened: Record, hosts: int) -> float:
    """How long a host waits for its confirmation, in seconds, where ``hosts`` are changed at once.

    Longer than ``verify_hosts`` goes on asking a host that does not answer.
    """
    config = opened.config
    if opened.plan.reboots:
        return _AFTER_REBOOT + config.reboot_deadline
    rounds = math.ceil(max(hosts, 1) / config.ssh_threads)
    return config.health_deadline + rounds * _ROUND


def expect_revert(opened: Record, work: Batch, names: Sequence[str], begun_in: float) -> None:
    """Note when hosts have reverted at the latest whose wait begins in ``begun_in`` s at most."""
    window = confirm_window(opened, len(work.hosts))
    for name in names:
        work.hosts[name].reverts_at = clock.now() + begun_in + window + _way_back(opened)


def may_still_revert(opened: Record, host: HostStep) -> bool:
    """Whether a host that cannot be reached may yet come back by taking its change back."""
    config, now = opened.config, clock.now()
    longest = config.health_deadline + apply_timeout(opened) + config.reboot_deadline
    longest += _way_back(opened)
    longest += confirm_window(opened, len(opened.pop.hosts))
    # A clock that was set back makes nobody wait for longer than it can take.
    host.reverts_at = min(host.reverts_at, now + longest)
    return now < host.reverts_at


def waits_for_revert(opened: Record, work: Batch, answer: HostResult) -> bool:
    """Whether a rollback has to wait for a host that gave this answer."""
    host = work.hosts[answer.host]
    silent = answer.reason == "unreachable" and work.batch_type == "restore"
    return silent and may_still_revert(opened, host)


def revert_text(host: HostStep) -> str:
    """Until when a rollback waits for a host that does not answer."""
    return f"does not answer, and may take its change back by itself until {utc(host.reverts_at)}"


def waiting_text(work: Batch, names: Sequence[str]) -> str:
    """For whom a rollback waits, and until when."""
    until = {name: utc(work.hosts[name].reverts_at) for name in names}
    each = ", ".join(f"{name} (until {when})" for name, when in until.items())
    return f"waiting for hosts to take their change back by themselves: {each}"
