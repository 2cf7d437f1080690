# SPDX-License-Identifier: Apache-2.0
"""Claim a PoP for the rollout of a plan."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.head import Approved, Head
from edgetune.base.errors import EdgetuneError
from edgetune.base.people import signed
from edgetune.rollout.context import Context
from edgetune.rollout.gates.approval import use_approval, valid_approval
from edgetune.rollout.gates.freeze import refuse_if_frozen
from edgetune.rollout.gates.pause import refuse_if_paused
from edgetune.rollout.ownership.automation import thread_of
from edgetune.rollout.ownership.kill_switch import refuse_if_stopped
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.archive import archive_ended, largest_epoch
from edgetune.rollout.record.heads import refuse_unfinished
from edgetune.rollout.record.rollout import load_plan
from edgetune.rollout.status.claimed import refuse_held

_UNRECORDED = 60.0


class ClaimedResult(TypedDict):
    """A rollout that has begun, and the epoch of its claim."""

    rollout: str
    epoch: int
    message: str


def claim_pop(
    context: Context,
    plan: str,
    owner: str = "",
    requested_by: str = "",
    wait: bool = False,
    channel: str = "",
    caller: str = "",
) -> ClaimedResult:
    """Claim the PoP of a plan, and begin its rollout there.

    ``owner`` is the execution that carries it on from now; ``wait`` says that this one stays until
    the soak has ended. ``channel`` is where in chat the rollout tells how it gets on.
    ``plan_approval`` of the configuration asks for an approval of the plan that no other rollout
    was begun with, by somebody who is neither ``requested_by`` nor the ``caller`` whom StackStorm
    knows. During the freezes of the configuration neither it nor a batch of it begins.

    RefusedError while everything is stopped, the PoP is paused or frozen or has another rollout, or
    without that approval.
    """
    head = begin_rollout(context, plan, owner, requested_by, wait, channel, caller)
    message = f"{head.id} holds {head.pop}, epoch {head.epoch}"
    return {"rollout": head.id, "epoch": head.epoch, "message": message}


def begin_rollout(
    context: Context,
    plan: str,
    owner: str = "",
    requested_by: str = "",
    wait: bool = False,
    channel: str = "",
    caller: str = "",
    approved: Approved | None = None,
    freezes: Sequence[Mapping[str, object]] = (),
    shut: Sequence[Mapping[str, object]] = (),
    ring: str = "",
) -> Head:
    """The same, and the head of the rollout.

    ``approved`` is its approval as the caller of this knows; with None an approval of the plan is
    asked for. During ``freezes`` (see ``edgetune.base.freezes.written``) neither it nor a batch of
    it begins, and no batch does while it is ``shut``. ``ring`` is as a ``Head`` has it.
    """
    refuse_if_stopped(context)
    planned = load_plan(context, plan)
    pop = context.inventory.pop(planned.pop)
    refuse_held(context, pop.name)
    refuse_unfinished(context, pop.name)
    needs_approval = context.config.plan_approval and approved is None
    if needs_approval:
        for who in (requested_by, caller or requested_by):
            valid_approval(context, plan, f"plan {plan}", who, context.config.self_approval)
    refuse_if_frozen(context, pop.name, freezes)
    refuse_if_paused(context, pop.name)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(clock.wall()))
    name = f"{pop.name}-{stamp}-{secrets.token_hex(2)}"
    above = largest_epoch(context, pop.name)
    # Short, until the record says whose it is.
    claim = context.claims.take(pop.name, name, _UNRECORDED, above=above)
    by = signed(requested_by, caller, context.config.system_user)
    head = Head(
        id=name,
        pop=pop.name,
        tuning=planned.tuning.name,
        plan=plan,
        state="claimed",
        epoch=claim.epoch,
        created=clock.wall(),
        owner=owner,
        by=by,
        wait=wait,
        channel=thread_of(context, channel, owner) or context.config.chat_channel,
        freezes=[dict(each) for each in (*freezes, *shut)],
        approved=approved or Approved(),
        ring=ring,
    )
    head.note(by, f"{pop.name} claimed, epoch {claim.epoch}")
    try:
        refuse_unfinished(context, pop.name)
        if needs_approval:
            head.approved = use_approval(context, plan, f"plan {plan}", name)
        Rollout(context, head).save()
    except EdgetuneError:
        context.claims.release(pop.name, claim)
        raise
    archive_ended(context, pop.name, claim, context.config.claim_ttl)
    return head
