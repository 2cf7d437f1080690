# SPDX-License-Identifier: Apache-2.0
"""Begin to take a rollout back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from edgetune import steady_clock
from edgetune.documents.head import CHANGES_HOSTS, Head
from edgetune.documents.words import Decision
from edgetune.errors import AWAY, FencedError, InputError, RefusedError
from edgetune.report.text import listed
from edgetune.rollout.context import Context
from edgetune.rollout.entering import enter_state, unfinished_batches
from edgetune.rollout.kill_switch import refuse_if_stopped
from edgetune.rollout.lease import open_rollout
from edgetune.rollout.pause_after import lift_planned
from edgetune.rollout.progress import failures_text, under_way
from edgetune.rollout.record import Record, read_rollout
from edgetune.rollout.rollback import plan_restore
from edgetune.rollout.steps.take_over_rollout import take_over
from edgetune.sanitize import command


class LeftAlone(TypedDict):
    """A rollout that can go nowhere any more: ``entered`` is False."""

    entered: bool
    rollout: str
    channel: str
    message: str


class RollbackResult(LeftAlone, total=False):
    """A rollback, its ``epoch``, and its batches from ``first_batch`` to before ``end_batch``."""

    epoch: int
    first_batch: int
    end_batch: int


def begin_rollback(
    context: Context,
    rollout: str,
    epoch: int = 0,
    owner: str = "",
    requested_by: str = "",
    reason: str = "",
    hosts: Sequence[str] = (),
) -> RollbackResult:
    """Decide that a rollout is taken back, plan its batches, and say which these are.

    A workflow knows the epoch. Of two callers with the same epoch one wins, the other gets
    FencedError. A workflow takes nothing back because a store is away: RefusedError, and the
    rollout is carried on once the store is there again. Epoch 0 takes the rollout over from
    whoever carries it on; ``entered`` is False if nothing can follow any more.

    A rollback that is under way goes on where it stands. With ``hosts`` it visits no other host.
    """
    if epoch:
        if AWAY in reason:
            raise RefusedError(f"{reason}; nothing is taken back for that, recover_orphans goes on")
        return _begin(context, rollout, epoch, owner, requested_by, reason, hosts)
    refuse_if_stopped(context)
    head = read_rollout(context, rollout).head
    _refuse_hosts(head, hosts)
    if not head.may_become:
        told = f"rollout {rollout} is {head.state} already"
        return {"entered": False, "rollout": rollout, "channel": "", "message": told}
    epoch = take_over(context, head, owner=owner, requested_by=requested_by).epoch
    try:
        return _begin(context, rollout, epoch, owner, requested_by, reason, hosts)
    except FencedError:
        # Somebody who resumes at the same moment loses to it.
        head = _refuse_second_rollback(context, rollout)
        if not head.may_become:
            raise
        epoch = take_over(context, head, owner=owner, requested_by=requested_by).epoch
        return _begin(context, rollout, epoch, owner, requested_by, reason, hosts)


def _begin(
    context: Context,
    rollout: str,
    epoch: int,
    owner: str,
    requested_by: str,
    reason: str,
    hosts: Sequence[str],
) -> RollbackResult:
    opened = open_rollout(context, rollout, epoch)
    head, before = opened.head, opened.head.state
    _refuse_hosts(head, hosts)
    why = _with_hosts_under_way(opened, reason or _what_failed(opened) or "asked for")
    enter_state(opened, "rolling_back", owner, requested_by, why)
    if before in CHANGES_HOSTS:
        head.taken_over = steady_clock.now()
    if before != "rolling_back":
        head.only = list(hosts)
    # Decided from here on, even if the load balancer is away and nothing can be planned yet.
    opened.save()
    lift_planned(opened, requested_by)
    plan_restore(opened)
    opened.save()
    first, end = unfinished_batches(opened)
    return {
        "entered": True,
        "rollout": rollout,
        "epoch": head.epoch,
        "first_batch": first,
        "end_batch": end,
        "channel": head.channel,
        "message": f"{head.state}: {head.history[-1].reason}",
    }


def _refuse_second_rollback(context: Context, rollout: str) -> Head:
    """Of two rollbacks that begin at once, one goes on, and nothing is done twice."""
    head = read_rollout(context, rollout).head
    if head.state == "rolling_back":
        other = head.last_by
        raise FencedError(
            f"rollout {rollout} is being rolled back already by {other}; should that one be gone, "
            f"{command('recover_rollout', rollout=rollout)} carries it on"
        )
    return head


def _refuse_hosts(head: Head, hosts: Sequence[str]) -> None:
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
