# SPDX-License-Identifier: Apache-2.0
"""The way of a batch through ``roll_batch`` or ``restore_batch``: what follows each step, and when.

Each step tells ``next``, the task to follow, and ``retry_after``, the seconds until then. The
result of a step is typed beside it, field by field like the ``output_schema`` of its action; what
results of steps on a batch have in common stands here.
"""

from __future__ import annotations

from typing import TypedDict

from edgetune.base.documents.batch import Batch
from edgetune.rollout.record.rollout import Record
from edgetune.site.config import Config

AT_ONCE = 5.0
"""Seconds. A task that has taken less takes the steps that follow, too: StackStorm needs a second
for a task of its own. One that took longer leaves them to tasks with timeouts of their own."""
_ON_THE_WAY = ("rebooting", "coming_back")
_CHANGE = {"change": "apply_tuning", "sham": "reboot_hosts", "restore": "restore_hosts"}


def after_drain(opened: Record, work: Batch) -> str:
    """A rollback may find hosts in the middle of a reboot, which can be told nothing yet."""
    if work.batch_type == "restore" and work.at(*_ON_THE_WAY):
        return "wait_for_hosts"
    return "set_bios" if opened.sets_bios else after_bios(work)


def after_boot(opened: Record, work: Batch) -> str:
    """Hosts that a rollback found in the middle of a reboot are told then what they take back."""
    told_all = not work.at(*_ON_THE_WAY, "drained")
    return "verify_hosts" if told_all and work.at("rebooted") else after_drain(opened, work)


def after_bios(work: Batch) -> str:
    """Nothing of a BIOS is in force before the host boots, so it comes first."""
    return _CHANGE[work.batch_type]


def after_change(work: Batch) -> str:
    """Hosts that need no reboot are proven at once."""
    reboots = any(host.reboot for host in work.hosts.values())
    return "reboot_hosts" if reboots else "verify_hosts"


def after_proof(work: Batch) -> str:
    """Hosts that were not drained serve all the while; quarantined ones are seen out of service."""
    left = work.at("verified", "undraining", "quarantined")
    return "undrain_hosts" if left else "check_health"


def has_live_left(work: Batch) -> bool:
    """Whether a rollback has to take something back that it can while the hosts serve.

    That waits for no room, nor for the end of a surge.
    """
    planned = [work.hosts[name] for name in work.at("planned")]
    return work.batch_type == "restore" and not all(host.live_back for host in planned)


def retry_after(config: Config, waited: float, least: float, most: float) -> int:
    """Seconds until something that has lasted for ``waited`` seconds is looked at again.

    A quarter of that time, so it is seen late by a quarter at most: each look is a task, and a
    workflow pays for each more than for the one before. Its owner is seen to live all the while.
    """
    return max(1, round(min(max(waited / 4, least), most, config.owner_timeout / 3)))


class BatchResult(TypedDict):
    """``failed`` are the hosts on which a step failed, ``error`` says why; both may be empty."""

    failed: list[str]
    error: str
    message: str


def batch_result(work: Batch, failed: list[str], message: str) -> BatchResult:
    """The result of a step on which these hosts failed, why, or else what is told."""
    error = "; ".join(f"{name}: {work.hosts[name].error}" for name in failed)
    return {"failed": failed, "error": error, "message": error or message}


class NextResult(BatchResult):
    """The batch goes on at the task ``next``, in ``retry_after`` seconds."""

    next: str
    retry_after: int


class WaitingResult(NextResult):
    """So many hosts are waited for (``waiting``)."""

    waiting: int
