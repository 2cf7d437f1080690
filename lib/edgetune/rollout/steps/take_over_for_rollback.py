# SPDX-License-Identifier: Apache-2.0
"""Take a rollout over from the execution that carries it on, and begin to take it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from edgetune.base.documents.head import Head
from edgetune.base.errors import FencedError, RefusedError
from edgetune.base.sanitize import command
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.kill_switch import refuse_if_stopped
from edgetune.rollout.ownership.lease import BatchesResult
from edgetune.rollout.record.rollout import read_rollout
from edgetune.rollout.steps.begin_rollback import refuse_hosts, roll_back
from edgetune.rollout.steps.take_over_rollout import take_over


class _LeftAlone(TypedDict):
    """A rollout that can go nowhere any more: ``entered`` is False."""

    entered: bool
    rollout: str
    channel: str
    message: str


class TakenBackResult(_LeftAlone, total=False):
    """A rollback, as ``begin_rollback`` tells it."""

    epoch: int
    first_batch: int
    end_batch: int
    batches: int


def take_over_for_rollback(
    context: Context,
    rollout: str,
    owner: str = "",
    requested_by: str = "",
    reason: str = "",
    hosts: Sequence[str] = (),
) -> TakenBackResult:
    """Begin a rollback as ``begin_rollback`` does, from whichever epoch the rollout has.

    ``entered`` is False if nothing can follow any more. With ``hosts`` the rollback visits no
    other host. Of two that begin at once the second gets FencedError.
    """
    refuse_if_stopped(context)
    head = read_rollout(context, rollout).head
    refuse_hosts(head, hosts)
    if head.handed_over:
        raise RefusedError(head.handed_over)
    if not head.may_become:
        told = f"rollout {rollout} is {head.state} already"
        return {"entered": False, "rollout": rollout, "channel": "", "message": told}

    def begin(head: Head) -> BatchesResult:
        epoch = take_over(context, head, owner=owner, requested_by=requested_by).epoch
        return roll_back(context, rollout, epoch, owner, requested_by, reason, hosts)

    try:
        return {"entered": True, **begin(head)}
    except FencedError:
        # A resume that comes between the two halves loses to the rollback.
        head = _refuse_second_rollback(context, rollout)
        if not head.may_become:
            raise
        return {"entered": True, **begin(head)}


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
