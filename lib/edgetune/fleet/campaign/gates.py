# SPDX-License-Identifier: Apache-2.0
"""What keeps the present ring of a campaign from beginning more, and from being left."""

from __future__ import annotations

from collections.abc import Mapping

from edgetune.base import clock
from edgetune.base.documents.campaign import PopStep, Record, RingStep
from edgetune.base.documents.head import Approved, Head
from edgetune.base.documents.words import State
from edgetune.base.durations import utc
from edgetune.base.errors import InputError, RefusedError
from edgetune.base.freezes import ends_by_name
from edgetune.fleet.campaign.verdicts import held_by
from edgetune.intent.campaign import Campaign, Gates, find_campaign
from edgetune.rollout.context import Context
from edgetune.rollout.gates.approval import valid_approval
from edgetune.rollout.record.heads import all_heads, living_heads, look_up

UNWELL = (State.HELD, State.ROLLING_BACK, State.ROLLED_BACK)


def unchanged(context: Context, record: Record) -> Campaign:
    """The campaign as its file has it; RefusedError if that or the tuning is not as it was."""
    try:
        found = find_campaign(record.name, context.config.campaigns)
        tuning = context.tuning(record.tuning)
    except InputError as error:
        raise RefusedError(str(error)) from None
    if found.digest != record.digest:
        raise RefusedError(f"{found.where} has changed since the campaign began")
    if tuning.digest != record.tuning_digest:
        raise RefusedError(f"the tuning {tuning.name} has changed since the campaign began")
    return found


def heads_of(context: Context, *records: Record) -> dict[str, Head]:
    """The heads of campaigns by id, and all that are not in the archive.

    Rollouts that were begun by somebody who died before writing down which are named.
    """
    heads = {head.id: head for head in living_heads(context)}
    by_plan = {head.plan: head.id for head in heads.values()}
    for name, pop in ((name, pop) for record in records for name, pop in record.pops.items()):
        if pop.rollout and pop.rollout not in heads:
            found = look_up(context, pop.rollout)
            heads.update({found.id: found} if isinstance(found, Head) else {})
        elif pop.plans and not pop.rollout:
            if not by_plan.keys() & set(pop.plans):
                past = {head.id: head for head in all_heads(context, name)}
                by_plan.update((head.plan, head.id) for head in past.values())
                heads.update(past)
            begun = [by_plan[plan] for plan in pop.plans if plan in by_plan]
            if begun:
                pop.rollout, pop.refused = begun[-1], ""
    return heads


def unwell(record: Record, heads: Mapping[str, Head]) -> list[str]:
    """The PoPs that hold a campaign, each with the reason: a PoP that went wrong holds all.

    One that the judge alone took back does only if its ring confirms that, and those that a ring
    holds while the others are promoted do once the ring has ended.
    """
    kept = {name for ring in record.rings if not ring.closed for name in held_by(ring, heads)}
    return [
        f"{name}: {_what_is(pop, heads.get(pop.rollout))}"
        for name, pop in record.pops.items()
        if pop.rollout and not pop.left_out and name not in kept
        if pop.rollout not in heads or _is_unwell(pop, heads[pop.rollout])
    ]


def _is_unwell(pop: PopStep, head: Head) -> bool:
    return head.state in UNWELL and (not pop.alone or bool(head.quarantined))


def _what_is(pop: PopStep, head: Head | None) -> str:
    if head is None:
        return f"the record of rollout {pop.rollout} is gone"
    why = f": {head.verdict.reason}" if head.verdict else ""
    stuck = f", but {', '.join(sorted(head.quarantined))}" if head.quarantined else ""
    confirmed = "; its ring confirms harm" if pop.harm is not None and not pop.alone else ""
    return f"rollout {head.id} is {head.state}{stuck}{why}{confirmed}"


def closed_gates(context: Context, record: Record, ring: RingStep, gates: Gates) -> list[str]:
    """Why nothing of a ring may begin now; each is a sentence without its full stop."""
    ends = ends_by_name((*context.config.closed, *gates.closed), clock.wall())
    waits = [f"frozen by {name} until {utc(end)}" for name, end in ends.items()]
    # An approval is of the ring's beginning, and has to hold then.
    if not ring.begun:
        try:
            approval_of(context, record, ring, gates)
        except RefusedError as error:
            waits.append(str(error))
    return waits


def approval_of(context: Context, record: Record, ring: RingStep, gates: Gates) -> Approved:
    """Who approved a ring, or nobody where none has to; RefusedError says what is missing."""
    if not needs_approval(context, gates):
        return Approved()
    what = f"ring {ring.name} of {record.id}"
    return valid_approval(context, ring.digest, what, record.by, gates.self_approval).given


def needs_approval(context: Context, gates: Gates) -> bool:
    """Whether somebody has to approve a ring before it begins."""
    return gates.approval or context.config.plan_approval
