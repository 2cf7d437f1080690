# SPDX-License-Identifier: Apache-2.0
"""What keeps the present ring of a campaign from beginning more, and from being left."""

from __future__ import annotations

from collections.abc import Mapping

from edgetune.base import clock
from edgetune.base.documents.campaign import Record, RingStep, RingVerdict
from edgetune.base.documents.head import Approved, Head
from edgetune.base.documents.words import Decision, State
from edgetune.base.durations import utc
from edgetune.base.errors import EdgetuneError, InputError, RefusedError, StoreError
from edgetune.base.freezes import ends_by_name
from edgetune.intent.campaign import Campaign, Gates, find_campaign
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.soak import Soak
from edgetune.rollout.gates.approval import valid_approval
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.record.rollout import read_rollout

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


def find_rollouts(record: Record, heads: Mapping[str, Head]) -> None:
    """Name those, too, that were begun by somebody who died before writing down which."""
    by_plan = {head.plan: head.id for head in heads.values()}
    for pop in record.pops.values():
        found = [by_plan[plan] for plan in pop.plans if plan in by_plan]
        if found and not pop.rollout:
            pop.rollout, pop.refused = found[-1], ""


def unwell(record: Record, heads: Mapping[str, Head]) -> list[str]:
    """The PoPs that hold a campaign, each with the reason: a PoP that went wrong holds all."""
    return [
        f"{name}: {_what_is(heads.get(pop.rollout), pop.rollout)}"
        for name, pop in record.pops.items()
        if pop.rollout and not pop.left_out
        if pop.rollout not in heads or heads[pop.rollout].state in UNWELL
    ]


def _what_is(head: Head | None, rollout: str) -> str:
    if head is None:
        return f"the record of rollout {rollout} is gone"
    why = f": {head.verdict.reason}" if head.verdict else ""
    return f"rollout {rollout} is {head.state}{why}"


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


def verdict_of(context: Context, ring: RingStep, gates: Gates) -> RingVerdict:
    """The verdict of a ring whose PoPs have all ended.

    What cannot be judged is held; only a store that cannot be reached is no answer.
    """
    from edgetune.judge.ring import judge_each, judge_ring

    rollouts = {name: pop.rollout for name, pop in ring.pops.items() if not pop.left_out}
    if not rollouts:
        return _held("nothing was rolled out, so nothing is proven")
    if gates.verdict == "each":
        heads = {name: read_rollout(context, id).head for name, id in rollouts.items()}
        found = {name: head.verdict for name, head in heads.items()}
        decided = {name: own.decision.value if own else "" for name, own in found.items()}
        decision, reason = judge_each(decided)
        return RingVerdict(decision, reason)
    try:
        soaks = {name: Soak(as_owner(context, id)) for name, id in rollouts.items()}
        look = judge_ring({name: soak.for_ring() for name, soak in soaks.items()})
    except StoreError:
        raise
    except EdgetuneError as error:
        return _held(f"no verdict: {error}")
    return RingVerdict(look.decision, look.reason, look.verdict, look.draws, look.metrics)


def _held(reason: str) -> RingVerdict:
    return RingVerdict(Decision.HOLD, reason)
