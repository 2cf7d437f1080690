# SPDX-License-Identifier: Apache-2.0
"""Begin to take a rollout back under its epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.head import CHANGES_HOSTS, Head
from edgetune.base.documents.words import Decision
from edgetune.base.errors import AWAY, InputError, RefusedError
from edgetune.base.names import listed
from edgetune.rollout.context import Context
from edgetune.rollout.gates.pause import lift_bound
from edgetune.rollout.hosts.rollback import plan_restore
from edgetune.rollout.ownership.lease import enter_state, open_rollout, unfinished_batches
from edgetune.rollout.record.rollout import Record, failures_text, under_way


class RollbackResult(TypedDict):
    """A rollback, its ``epoch``, and its batches from ``first_batch`` to before ``end_batch``.

    ``batches`` is how many it has, with those that are finished.
    """

    rollout: str
    epoch: int
    first_batch: int
    end_batch: int
    batches: int
    channel: str
    message: str


def begin_rollback(
    context: Context,
    rollout: str,
    epoch: int,
    owner: str = "",
    requested_by: str = "",
    reason: str = "",
    hosts: Sequence[str] = (),
) -> RollbackResult:
    """Decide that a workflow takes its rollout back, plan its batches, and say which these are.

    Of two callers with the same epoch one wins, the other gets FencedError. Nothing is taken back
    because a store is away: RefusedError, and the rollout is carried on once the store is there
    again. A rollback that is under way goes on where it stands.
    """
    if AWAY in reason:
        raise RefusedError(f"{reason}; nothing is taken back for that, recover_orphans goes on")
    return roll_back(context, rollout, epoch, owner, requested_by, reason, hosts)


def roll_back(
    context: Context,
    rollout: str,
    epoch: int,
    owner: str,
    requested_by: str,
    reason: str,
    hosts: Sequence[str],
) -> RollbackResult:
    """The same, whatever the reason. With ``hosts`` the rollback visits no other host."""
    opened = open_rollout(context, rollout, epoch)
    head, before = opened.head, opened.head.state
    refuse_hosts(head, hosts)
    why = _with_hosts_under_way(opened, reason or _what_failed(opened) or "asked for")
    enter_state(opened, "rolling_back", owner, requested_by, why)
    if before in CHANGES_HOSTS:
        head.taken_over = clock.now()
    if before != "rolling_back":
        head.only = list(hosts)
    # Decided from here on, even if the load balancer is away and nothing can be planned yet.
    opened.save()
    lift_bound(context, head.pop, rollout, requested_by)
    plan_restore(opened)
    opened.save()
    first, end = unfinished_batches(opened)
    return {
        "rollout": rollout,
        "epoch": head.epoch,
        "first_batch": first,
        "end_batch": end,
        "batches": len(opened.numbers(head.state)),
        "channel": head.channel,
        "message": f"{head.state}: {head.history[-1].told}",
    }


def refuse_hosts(head: Head, hosts: Sequence[str]) -> None:
    """Single hosts are visited only once all others are back: RefusedError, or InputError."""
    if hosts and head.state != "rolled_back":
        text = "single hosts are visited only once it is rolled_back"
        raise RefusedError(f"rollout {head.id} is {head.state}; {text}")
    for name in hosts:
        if name not in head.quarantined:
            raise InputError("parameter", "hosts", f"{name} has nothing to be taken back")


def _with_hosts_under_way(opened: Record, reason: str) -> str:
    """A step that did not end, or an aborted one, names no host: its batch tells them."""
    try:
        hosts = dict(under_way(opened.batches()))
    except RefusedError:
        # What cannot be read keeps nobody from deciding to take it back.
        return reason
    told = [f"{name} ({host.step})" for name, host in hosts.items()]
    named = not told or any(name in reason for name in hosts)
    return reason if named else f"{reason}; under way: {listed(told)}"


def _what_failed(opened: Record) -> str:
    failed = list(failures_text(opened))
    if failed:
        return "; ".join(failed[:3])
    verdict = opened.head.verdict
    return verdict.reason if verdict and verdict.decision is Decision.ROLL_BACK else ""
