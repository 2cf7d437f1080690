# SPDX-License-Identifier: Apache-2.0
"""Claim a PoP for a rollout."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from edgetune import steady_clock
from edgetune.documents.head import CHANGES_HOSTS, ENDED, Head
from edgetune.errors import EdgetuneError
from edgetune.rollout.approval import use_approval, valid_approval
from edgetune.rollout.heads import all_heads
from edgetune.rollout.lease import Rollout, as_owner
from edgetune.rollout.orphans import is_orphaned
from edgetune.rollout.other_rollouts import largest_epoch, refuse_unfinished
from edgetune.rollout.pause import refuse_if_paused
from edgetune.rollout.record import Record, load_plan
from edgetune.rollout.site import Site
from edgetune.rollout.switch import refuse_if_stopped

_UNRECORDED = 60.0


def claim_pop(
    site: Site,
    plan: str = "",
    rollout: str = "",
    left_by: str = "",
    epoch: int = 0,
    owner: str = "",
    by: str = "",
    wait: bool = False,
    carry_on: bool = False,
    orphaned: bool = False,
    channel: str = "",
    asked_by: str = "",
    *,
    approved: bool = False,
    freezes: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Begin the rollout of a plan, or take over an existing one with a new epoch.

    An existing one is named by its id, or by ``left_by``, the execution that carried it on
    last; then ``claimed`` is False when that execution left nothing unfinished. With ``epoch``
    it is taken over only from that epoch: a workflow takes nothing from a person. ``owner`` is
    the execution that carries it on from now; ``wait`` says that this one stays until the soak
    has ended. With ``carry_on`` nothing is taken that has ended: it could only be taken back,
    with ``orphaned`` nothing that has a living owner. ``approved`` says that the caller knows of
    an approval; otherwise ``plan_approval`` of the configuration asks for one of the plan that
    no other rollout was begun with, by somebody who is neither ``by`` nor ``asked_by``, whom
    StackStorm knows as the caller.
    ``channel`` is where in chat the rollout tells how it gets on, if it does not know of one.
    During ``freezes`` (see ``edgetune.freezes.written``) no batch of it begins.
    """
    needs_approval = bool(plan) and site.config.plan_approval and not approved
    if needs_approval:
        for who in (by, asked_by or by):
            valid_approval(site, plan, f"plan {plan}", who, site.config.self_approval)
    if plan:
        channel = channel or site.config.chat_channel
        closed = [dict(each) for each in freezes]
        own = {"owner": owner, "by": by, "wait": wait, "channel": channel, "freezes": closed}
        return _claimed(_begin(site, plan, own, needs_approval))
    if not rollout:
        left = [head for head in all_heads(site) if left_by and _left_unfinished(head, left_by)]
        if not left:
            return {"claimed": False, "message": "that execution left nothing to carry on"}
        rollout = left[-1].id
    taken = as_owner(site, rollout)
    if not taken.head.may_become or (carry_on and taken.head.state in ENDED):
        return {"claimed": False, "message": f"rollout {rollout} is {taken.head.state} already"}
    if orphaned and not is_orphaned(site, taken.head):
        return {"claimed": False, "message": f"rollout {rollout} has an owner again"}
    refuse_unfinished(site, taken.head.pop, but=rollout)
    claim = site.claims.take(
        taken.head.pop,
        rollout,
        site.config.claim_ttl,
        after=epoch or None,
        above=largest_epoch(site, taken.head.pop),
    )
    taken = as_owner(site, rollout)
    taken.head.epoch, taken.head.owner = claim.epoch, owner
    taken.head.wait = taken.head.wait or wait
    taken.head.channel = taken.head.channel or channel
    if taken.head.state in CHANGES_HOSTS:
        taken.head.taken_over = steady_clock.now()
    taken.head.note(by, f"taken over, epoch {claim.epoch}")
    taken.save()
    return _claimed(taken)


def _left_unfinished(head: Head, execution: str) -> bool:
    return head.owner == execution and head.wants_a_workflow


def _begin(site: Site, digest: str, own: Mapping[str, Any], needs_approval: bool) -> Rollout:
    refuse_if_stopped(site)
    plan = load_plan(site, digest)
    pop = site.inventory.pop(plan.pop)
    refuse_if_paused(site, pop.name)
    refuse_unfinished(site, pop.name)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    name = f"{pop.name}-{stamp}-{secrets.token_hex(2)}"
    above = largest_epoch(site, pop.name)
    # Short, until the record says whose it is.
    claim = site.claims.take(pop.name, name, _UNRECORDED, above=above)
    head = Head(
        id=name,
        pop=pop.name,
        tuning=plan.tuning.name,
        plan=digest,
        state="claimed",
        epoch=claim.epoch,
        created=time.time(),
        **own,
    )
    head.note(head.by, f"{pop.name} claimed, epoch {claim.epoch}")
    begun = Rollout(site, head)
    try:
        refuse_unfinished(site, pop.name)
        if needs_approval:
            use_approval(site, digest, f"plan {digest}", name)
        begun.save()
    except EdgetuneError:
        site.claims.release(pop.name, claim)
        raise
    return begun


def _claimed(opened: Record) -> dict[str, Any]:
    head = opened.head
    return {
        "claimed": True,
        "rollout": head.id,
        "epoch": head.epoch,
        "state": head.state,
        "wait": head.wait,
        "message": f"{head.id} holds {head.pop}, epoch {head.epoch}",
    }
