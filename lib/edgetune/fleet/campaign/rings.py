# SPDX-License-Identifier: Apache-2.0
"""The rings of a campaign: the one verdict of each, who waits for it and how its PoPs get it; and
what keeps the present one from beginning more, and from being left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgetune.base import clock
from edgetune.base.documents.campaign import PopStep, Record, RingStep, RingVerdict
from edgetune.base.documents.head import PROMOTED, Approved, Head
from edgetune.base.documents.words import Decision, State, Verdict
from edgetune.base.durations import duration, utc
from edgetune.base.errors import (
    DamagedError,
    EdgetuneError,
    FencedError,
    InputError,
    RefusedError,
    StoreError,
)
from edgetune.base.freezes import ends_by_name
from edgetune.base.sanitize import one_line
from edgetune.intent.campaign import Campaign, Gates, find_campaign
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.soak import Soak
from edgetune.rollout.gates.approval import valid_approval
from edgetune.rollout.ownership.lease import Rollout, as_owner
from edgetune.rollout.record.heads import all_heads, living_heads, look_up
from edgetune.rollout.steps.compare_groups import take_if_ownerless, take_turn

if TYPE_CHECKING:
    from edgetune.judge.ring import Over, PopRecord


_TAKEN_BACK = (State.ROLLING_BACK, State.ROLLED_BACK)
# A reason is shortened where it is kept.
_COMPARED = 500


def waiting(context: Context, ring: RingStep, heads: Mapping[str, Head]) -> list[str]:
    """The PoPs of a ring whose soak has ended, and that wait for its verdict."""
    return [
        name
        for name, pop in ring.pops.items()
        for head in [heads.get(pop.rollout)]
        if head and not pop.left_out and waits(context, head)
    ]


def owed(context: Context, ring: RingStep, heads: Mapping[str, Head]) -> list[str]:
    """The PoPs that do not have the verdict of their ring yet, if it promotes none of them.

    Who soaked again since then waits for another one.
    """
    ruling = ring.ruling
    if ruling is None or ruling.decision is Decision.PROMOTE:
        return []
    every = waiting(context, ring, heads)
    return [name for name in every if heads[ring.pops[name].rollout].soak[0] <= ring.judged]


def waits(context: Context, head: Head) -> bool:
    """Whether a rollout waits for the verdict of its ring."""
    if not head.ring or head.state != State.SOAKING or clock.wall() < head.soak[1]:
        return False
    try:
        return Soak(Rollout(context, head)).waits_for_ring
    except DamagedError:
        return False


def has_ended(pop: PopStep, heads: Mapping[str, Head]) -> bool:
    """Whether nothing more is to come of a PoP in its ring."""
    state = heads[pop.rollout].state if pop.rollout in heads else ""
    return bool(pop.left_out) or state in PROMOTED or (bool(pop.alone) and state in _TAKEN_BACK[1:])


def is_settled(ring: RingStep, waits: Sequence[str], heads: Mapping[str, Head]) -> bool:
    """Whether every PoP of a ring has ended its soak, be it that it was taken back."""
    held = held_by(ring, heads)
    return all(has_ended(pop, heads) or name in (*waits, *held) for name, pop in ring.pops.items())


def held_by(ring: RingStep, heads: Mapping[str, Head]) -> dict[str, str]:
    """The PoPs that are held where the others are promoted, and why."""
    ruling = ring.ruling
    if ruling is None or ruling.decision is not Decision.PROMOTE:
        return {}
    found = {name: why for name, why in ruling.held.items() if name in ring.pops}
    heads_of = {name: heads.get(ring.pops[name].rollout) for name in found}
    return {name: found[name] for name, head in heads_of.items() if head and head.state == "held"}


def awaited(ring: RingStep, waits: Sequence[str], heads: Mapping[str, Head]) -> str:
    """How far a ring is from its verdict; "" where nobody waits for it."""
    if not waits or ring.verdict:
        return ""
    of = {name: pop for name, pop in ring.pops.items() if not pop.left_out}
    ended = sum(name in waits or has_ended(pop, heads) for name, pop in of.items())
    return f"ring {ring.name} waits for its verdict: {ended} of {len(of)} PoPs have ended the soak"


def overdue(
    record: Record, ring: RingStep, gates: Gates, waits: Sequence[str], heads: Mapping[str, Head]
) -> str:
    """Why a ring waits no longer for its verdict; "" while it may.

    It may for ``longest_wait`` since a PoP of it last began or ended something, or the campaign was
    resumed.
    """
    seen = [heads[pop.rollout] for pop in ring.pops.values() if pop.rollout in heads]
    moments = [max([head.created, *head.baseline, *head.soak]) for head in seen]
    moments += [entry.at for entry in record.history if entry.what.startswith("running: ")]
    if clock.wall() - max(moments, default=0.0) <= gates.longest_wait:
        return ""
    late = [
        f"{name} ({state or pop.refused or 'not begun'})"
        for name, pop in ring.pops.items()
        for state in [heads[pop.rollout].state if pop.rollout in heads else ""]
        if not has_ended(pop, heads) and name not in waits
    ]
    lasted = duration(gates.longest_wait)
    return f"ring {ring.name} waited {lasted} for its verdict: {', '.join(late)} did not end a soak"


def verdict_of(
    context: Context, ring: RingStep, gates: Gates, heads: Mapping[str, Head]
) -> RingVerdict:
    """The verdict of a ring whose PoPs have all ended, or wait for it.

    What cannot be judged is held; only a store that cannot be reached is no answer.
    """
    from edgetune.judge.ring import decide_ring, judge_each

    inside = {n: p.rollout for n, p in ring.pops.items() if not (p.left_out or p.alone)}
    if not inside:
        return _held("nothing was rolled out, so nothing is proven")
    if gates.verdict == "each":
        found = {name: heads[id].verdict for name, id in inside.items()}
        decided = {name: own.decision.value if own else "" for name, own in found.items()}
        over = _over(context, ring, heads)
        headroom = [*over.headroom]
        return RingVerdict(*judge_each(decided), effect=over.effect, headroom=headroom)
    try:
        records, hindered = _records(context, ring, heads)
        if not inside.keys() & records.keys():
            return _held("; ".join(f"{pop}: {why}" for pop, why in hindered.items()))
        ruling = decide_ring(records, hindered)
    except StoreError:
        raise
    except EdgetuneError as error:
        return _held(f"no verdict: {error}")
    look, over = ruling.look, ruling.over
    return RingVerdict(
        look.decision,
        look.reason,
        look.verdict,
        look.draws,
        look.metrics,
        over.effect,
        {**ruling.held},
        [*over.headroom],
    )


def _over(context: Context, ring: RingStep, heads: Mapping[str, Head]) -> Over:
    """What is known over PoPs that were judged each alone; nothing where that cannot be told."""
    from edgetune.judge.ring import Over, over_all

    try:
        return over_all(_records(context, ring, heads)[0])
    except StoreError:
        raise
    except EdgetuneError:
        return Over()


def _records(
    context: Context, ring: RingStep, heads: Mapping[str, Head]
) -> tuple[dict[str, PopRecord], dict[str, str]]:
    """What every PoP that was compared has to say, promoted or not: to choose among them would
    flatter the tuning. The second are those that are not to be promoted, and why."""
    records: dict[str, PopRecord] = {}
    hindered: dict[str, str] = {}
    for name, pop in ring.pops.items():
        if pop.rollout not in heads:
            continue
        opened = as_owner(context, pop.rollout)
        state = opened.head.state
        if pop.left_out or state in _TAKEN_BACK:
            hindered[name] = "it was taken back" if state in _TAKEN_BACK else "it is left out"
        if not opened.head.soak:
            # It was taken back before it soaked.
            continue
        soak = Soak(opened)
        if name not in hindered and state not in PROMOTED and soak.hindrance:
            hindered[name] = soak.hindrance
        try:
            records[name] = soak.for_ring()
        except RefusedError:
            # What nobody compared is not promoted; what stands untested leaves no verdict.
            if name not in hindered:
                raise
    return records, hindered


def _held(reason: str) -> RingVerdict:
    return RingVerdict(Decision.HOLD, reason)


def conclude(
    context: Context, ring: RingStep, names: Sequence[str], room: float
) -> list[tuple[str, Decision]]:
    """Give PoPs that wait for it the verdict of their ring, but let no more than there is ``room``
    for begin to promote; those that got it, and what follows.

    What follows is done by who advances soaking rollouts. Whoever is at work on a PoP at this
    moment leaves it to the next step.
    """
    ruling, done = ring.ruling, []
    for name in names if ruling else ():
        assert ruling
        decision = ruling.decision_of(name)
        if decision is Decision.PROMOTE and room <= 0:
            continue
        verdict = ruling.verdict or Verdict.INCONCLUSIVE
        why = f"ring {ring.name}: {ruling.held.get(name, ruling.reason)}"
        if not end_soak(context, ring.pops[name].rollout, verdict, decision, why):
            continue
        room -= decision is Decision.PROMOTE
        done.append((name, decision))
    return done


def end_soak(
    context: Context, rollout: str, verdict: Verdict, decision: Decision, why: str
) -> bool:
    """Write down what follows for a rollout that waits for its ring; False if it does not now."""
    opened = as_owner(context, rollout)
    try:
        is_free = opened.head.state == State.SOAKING and take_if_ownerless(opened)
        soak = Soak(opened)
        if not is_free or not soak.waits_for_ring or not take_turn(opened):
            return False
        soak.conclude(verdict, decision, why)
    except FencedError:
        return False
    return True


def ask_rings(
    context: Context, record: Record, definition: Campaign, heads: Mapping[str, Head]
) -> list[str]:
    """Ask each ring about the PoPs of it that the judge alone took back; what is news.

    ``alone`` of these says afterwards what the ring says, unless it confirms the harm.
    """
    news = []
    for ring in record.rings:
        alpha = definition.ring(ring.name).options.alpha_harm
        begun = {name: pop for name, pop in ring.pops.items() if pop.rollout in heads}
        soaked = {name: pop for name, pop in begun.items() if heads[pop.rollout].soak}
        for pop in soaked.values():
            if pop.harm is None and heads[pop.rollout].state in _TAKEN_BACK:
                pop.harm = _harm_of(context, heads[pop.rollout])
        if any(pop.harm is not None for pop in soaked.values()):
            news += _asked(soaked, alpha)
    return news


def _asked(soaked: Mapping[str, PopStep], alpha: float) -> list[str]:
    from edgetune.judge.multiplicity import view_of_harm

    ps = [1.0 if pop.harm is None else pop.harm for pop in soaked.values()]
    view = view_of_harm(ps, alpha)
    whole = f"the ring of {len(soaked)} PoP{'s' * (len(soaked) != 1)}"
    said = f"rolled back alone; {whole} does not confirm harm (q = {view.q:.2g})"
    news = []
    for name, pop in soaked.items():
        if pop.harm is None or pop.left_out:
            continue
        if view.confirms:
            pop.alone = ""
        elif not pop.alone:
            news.append(f"{name}: {said}")
        if not view.confirms:
            pop.alone = said
    return news


def _harm_of(context: Context, head: Head) -> float | None:
    """The p of the sequential test by which the judge alone had a rollout taken back; None if
    anything else did, or not all of its hosts are back.

    Who acts on a look without writing it down foresees it; it is the same one afterwards.
    """
    if head.quarantined:
        return None
    try:
        soak = Soak(as_owner(context, head.id))
        look = soak.looks[-1] if soak.has_decided else soak.foreseen()
    except StoreError:
        raise
    except EdgetuneError:
        return None
    if look is None or look.decision is not Decision.ROLL_BACK or look.ring:
        return None
    if one_line(look.reason)[:_COMPARED] not in one_line(head.cause):
        return None
    # Once so much of alpha is spent, a test of nothing is out with at most this probability.
    return look.tests["harm"].spent


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
