# SPDX-License-Identifier: Apache-2.0
"""Begin to measure what tuned hosts carry beside untuned ones."""

from __future__ import annotations

from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.capacity import Capacity, PairMeasured
from edgetune.base.errors import FencedError, RefusedError
from edgetune.base.names import several
from edgetune.base.people import signed
from edgetune.rollout.context import Context
from edgetune.rollout.gates.approval import use_approval, valid_approval
from edgetune.rollout.gates.freeze import refuse_if_frozen
from edgetune.rollout.gates.pause import refuse_if_paused
from edgetune.rollout.hosts import measuring
from edgetune.rollout.hosts.weights import end_measuring
from edgetune.rollout.ownership.kill_switch import refuse_if_stopped
from edgetune.rollout.ownership.lease import Rollout, as_owner
from edgetune.rollout.ownership.owner import idle_time
from edgetune.rollout.record.capacity import load_capacity_plan
from edgetune.rollout.steps.plan_capacity import refuse_measured


class CapacityBegunResult(TypedDict):
    """The rollout during which it is measured, and the epoch of its claim from here on."""

    rollout: str
    epoch: int
    message: str


def begin_capacity(
    context: Context, plan: str, owner: str = "", requested_by: str = "", caller: str = ""
) -> CapacityBegunResult:
    """Take the rollout's claim under a new epoch for the measurement of a plan; no look at the
    soak is taken meanwhile.

    ``owner`` is the execution that measures. ``plan_approval`` of the configuration asks for an
    approval of the plan, as for a rollout.

    RefusedError while everything is stopped, the PoP is paused or frozen, its rollout is not to be
    measured, or without that approval. FencedError while somebody else is at work on it.
    """
    refuse_if_stopped(context)
    planned = load_capacity_plan(context, plan)
    opened = as_owner(context, planned.rollout)
    head = opened.head
    refuse_measured(context, head)
    what = f"plan {plan}"
    if context.config.plan_approval:
        for who in (requested_by, caller or requested_by):
            valid_approval(context, plan, what, who, context.config.self_approval)
    refuse_if_frozen(context, head.pop, head.freezes)
    refuse_if_paused(context, head.pop)
    _take_claim(context, opened)
    end_measuring(opened)
    if context.config.plan_approval:
        use_approval(context, plan, what, head.id)
    by = signed(requested_by, caller, context.config.system_user)
    own = Capacity(planned, by, clock.wall(), pairs=[PairMeasured() for _ in planned.pairs])
    measuring.begin(opened, own, owner)
    pairs = several(len(planned.pairs), "pair")
    message = f"{pairs} of hosts of {head.pop} get more traffic, epoch {head.epoch}"
    return {"rollout": head.id, "epoch": head.epoch, "message": message}


def _take_claim(context: Context, opened: Rollout) -> None:
    """Under an epoch of its own. A claim of another epoch than the record's is that of somebody who
    is at work and has not written it down yet, or who died."""
    head = opened.head
    holder = context.claims.holder(head.pop)
    if holder is not None and holder.epoch != head.epoch:
        if holder.rollout != head.id:
            raise RefusedError(f"{head.pop} is claimed by {holder.rollout}")
        if idle_time(context, head.pop) < context.config.owner_timeout:
            raise FencedError(f"somebody else is at work on {head.id}")
    after, ttl = holder.epoch if holder else None, context.config.claim_ttl
    claim = context.claims.take(head.pop, head.id, ttl, after=after, above=head.epoch)
    head.epoch = claim.epoch
