# SPDX-License-Identifier: Apache-2.0
"""Take a rollout over from whoever carries it on."""

from __future__ import annotations

from typing import Any

from edgetune import steady_clock
from edgetune.documents.head import CHANGES_HOSTS, ENDED, Head
from edgetune.rollout.context import Context
from edgetune.rollout.lease import as_owner
from edgetune.rollout.orphans import is_orphaned
from edgetune.rollout.other_rollouts import largest_epoch, refuse_unfinished


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
) -> dict[str, Any]:
    """Take a rollout over under a new epoch; ``claimed`` is False where it is left alone.

    With ``epoch`` it is taken over only from that epoch, else FencedError: a workflow takes nothing
    from a person. ``owner`` is the execution that carries it on from now; ``wait`` says that this
    one stays until the soak has ended. ``channel`` is where in chat the rollout tells how it gets
    on, if it does not know of one.

    A rollout that can go nowhere is left alone. So is with ``unfinished_only`` one that has ended,
    as it could only be taken back; with ``orphaned`` one that has a living owner; with
    ``execution`` one that another execution carries on by now.
    """
    taken = as_owner(context, rollout)
    why = _why_left_alone(context, taken.head, unfinished_only, orphaned, execution)
    if why:
        return {"claimed": False, "message": f"rollout {rollout} {why}"}
    refuse_unfinished(context, taken.head.pop, but=rollout)
    claim = context.claims.take(
        taken.head.pop,
        rollout,
        context.config.claim_ttl,
        after=epoch or None,
        above=largest_epoch(context, taken.head.pop),
    )
    taken = as_owner(context, rollout)
    head = taken.head
    head.epoch, head.owner = claim.epoch, owner
    head.wait = head.wait or wait
    head.channel = head.channel or channel
    if head.state in CHANGES_HOSTS:
        head.taken_over = steady_clock.now()
    head.note(requested_by, f"taken over, epoch {claim.epoch}")
    taken.save()
    return {
        "claimed": True,
        "rollout": rollout,
        "epoch": head.epoch,
        "state": head.state,
        "wait": head.wait,
        "message": f"{rollout} holds {head.pop}, epoch {head.epoch}",
    }


def _why_left_alone(
    context: Context, head: Head, unfinished_only: bool, orphaned: bool, execution: str
) -> str:
    if not head.may_become or (unfinished_only and head.state in ENDED):
        return f"is {head.state} already"
    if (orphaned and not is_orphaned(context, head)) or (execution and head.owner != execution):
        return "has an owner again"
    return ""
