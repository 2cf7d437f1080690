# SPDX-License-Identifier: Apache-2.0
"""Take a rollout over from whoever carries it on."""

from __future__ import annotations

from contextlib import suppress
from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.head import CHANGES_HOSTS, ENDED, Head
from edgetune.base.errors import StoreError
from edgetune.base.sanitize import command
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.automation import thread_of
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.ownership.owner import is_orphaned, owner_of
from edgetune.rollout.record.archive import largest_epoch
from edgetune.rollout.record.heads import refuse_unfinished
from edgetune.rollout.record.rollout import read_rollout


class _Refused(TypedDict):
    """A rollout that is left alone: ``claimed`` is False."""

    claimed: bool
    message: str


class TakenResult(_Refused, total=False):
    """A rollout under a new ``epoch``; without one it was left alone."""

    rollout: str
    epoch: int
    state: str
    wait: bool
    ended: str


def take_over_rollout(
    context: Context,
    rollout: str,
    epoch: int = 0,
    owner: str = "",
    requested_by: str = "",
    wait: bool = False,
    channel: str = "",
    unfinished_only: bool = False,
    orphaned: bool = False,
    execution: str = "",
) -> TakenResult:
    """Take a rollout over under a new epoch; ``claimed`` is False where it is left alone.

    With ``epoch`` it is taken over only from that epoch, else FencedError: a workflow takes nothing
    from a person. ``owner`` is the execution that carries it on from now; ``wait`` says that this
    one stays until the soak has ended. ``channel`` is where in chat the rollout tells how it gets
    on, if it does not know of one.

    ``ended`` tells how the execution ended that carried it on, where StackStorm knows that.

    A rollout that can go nowhere is left alone. So is with ``unfinished_only`` one that has ended,
    as it could only be taken back; with ``orphaned`` one that has a living owner; with
    ``execution`` one that another execution carries on by now.
    """
    head = read_rollout(context, rollout).head
    why = _why_left_alone(context, head, unfinished_only, orphaned, execution)
    if why:
        return {"claimed": False, "message": f"rollout {rollout} {why}"}
    ended = ""
    # A StackStorm that does not answer keeps nobody from taking a rollout over.
    with suppress(StoreError):
        before = owner_of(context, head)
        ended = before.status if before and before.has_ended else ""
    head = take_over(context, head, epoch, owner, requested_by, wait, channel)
    return {
        "claimed": True,
        "rollout": rollout,
        "epoch": head.epoch,
        "state": head.state,
        "wait": head.wait,
        "ended": ended,
        "message": f"{rollout} holds {head.pop}, epoch {head.epoch}",
    }


def take_over(
    context: Context,
    head: Head,
    epoch: int = 0,
    owner: str = "",
    requested_by: str = "",
    wait: bool = False,
    channel: str = "",
) -> Head:
    """The same for a rollout that is not left alone: its head under the new epoch."""
    refuse_unfinished(context, head.pop, but=head.id)
    claim = context.claims.take(
        head.pop,
        head.id,
        context.config.claim_ttl,
        after=epoch or None,
        above=largest_epoch(context, head.pop),
    )
    taken = as_owner(context, head.id)
    head = taken.head
    head.epoch, head.owner = claim.epoch, owner
    head.wait = head.wait or wait
    head.channel = head.channel or thread_of(context, channel, owner)
    if head.state in CHANGES_HOSTS:
        head.taken_over = clock.now()
    head.note(requested_by, f"taken over, epoch {claim.epoch}")
    taken.save()
    return head


def _why_left_alone(
    context: Context, head: Head, unfinished_only: bool, orphaned: bool, execution: str
) -> str:
    if not head.may_become or (unfinished_only and head.state in ENDED):
        return f"is {head.state} already"
    if head.state == "handing_over":
        again = command("retire_tuning", pop=head.pop, tuning=head.tuning, hand_over="true")
        return f"is being handed over; {again} carries it on"
    owned = execution in ("", head.owner) or head.is_measured_by(execution)
    if (orphaned and not is_orphaned(context, head)) or not owned:
        return "has an owner again"
    return ""
