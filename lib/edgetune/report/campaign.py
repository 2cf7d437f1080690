# SPDX-License-Identifier: Apache-2.0
"""What people read of campaigns in a terminal, as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from edgetune.base.documents.campaign import (
    PopStep,
    Record,
    RingEffect,
    RingHeadroom,
    RingLoad,
    RingStep,
)
from edgetune.base.documents.schedule import Schedule, Turn
from edgetune.base.durations import duration, roughly, utc
from edgetune.base.names import several
from edgetune.base.numbers import bounds, more_load, number, percent, share
from edgetune.intent.campaign import Ring, ShownCampaign
from edgetune.judge.capacity import limit_text

_MUCH = 0.1
"""The share of a campaign's time that is worth a proposal."""


def definition_text(shown: ShownCampaign) -> str:
    """A campaign as it is shown before its first rollout."""
    campaign, closed, refused = shown.campaign, shown.closed, shown.refused
    turns = {turn.pop: turn for turn in shown.schedule.turns}
    lines = [f"Campaign {shown.id or campaign.name}: {campaign.tuning}"]
    lines += [f"  every ring: {_not_during(closed)} (configuration)"] if closed else []
    for place, ring in enumerate(campaign.rings, 1):
        lines += [f"  {place} {ring.name}: {ring_terms(ring)}"]
        for pop in shown.pops[ring.name]:
            turn = turns.get(pop)
            told = [pop, *([turn_text(turn)] if turn else [])]
            told += [f"refused now: {refused[pop]}"] if pop in refused else []
            lines.append(f"      {'  '.join(told)}")
    lines += [f"  {line}" for line in schedule_lines(shown.schedule)]
    return "\n".join(lines)


def turn_text(turn: Turn) -> str:
    """When a PoP has its turn, at the latest, and how long that lasts."""
    if not isfinite(turn.ends[1]):
        return "never: freezes follow without end"
    begins, ends = (_minute(each[1]) for each in (turn.begins, turn.ends))
    told = f"{begins} to {ends} ({turn_length(turn)})"
    return f"{told}; {turn.load}" if turn.load else told


def turn_length(turn: Turn) -> str:
    """How long a PoP's turn takes."""
    least, most = (roughly(end - start) for start, end in zip(turn.begins, turn.ends))
    return least if least == most else f"{least} to {most}"


def schedule_lines(schedule: Schedule, with_costs: bool = True) -> list[str]:
    """When a campaign ends, what bounds that, and what would be sooner without what."""
    if not schedule.turns:
        return _without(schedule)
    if schedule.is_endless:
        return ["has no end: freezes follow one another without end", *_without(schedule)]
    start, (least, most) = schedule.start, schedule.ends
    soonest, latest = roughly(least - start), roughly(most - start)
    span = latest if soonest == latest else f"{soonest} to {latest}"
    lines = [
        f"ends in {span}, by {_minute(most)}; no schedule can end before "
        f"{roughly(schedule.bound - start)}"
    ]
    if schedule.costs and with_costs:
        costs = [f"{own.constraint}: {roughly(own.seconds)}" for own in schedule.costs]
        lines.append(f"what costs time, each alone: {'; '.join(costs)}")
    if most - schedule.auto > _MUCH * (most - start):
        lines.append(f"with max_concurrent: auto it would end in {roughly(schedule.auto - start)}")
    return [*lines, *_without(schedule)]


def _without(schedule: Schedule) -> list[str]:
    told = [*schedule.without, *(["PoPs that are held or taken back"] if schedule.turns else [])]
    return [f"not in it: {'; '.join(told)}"] if told else []


def _minute(moment: float) -> str:
    return f"{utc(moment)[:16]}Z"


def ring_terms(ring: Ring) -> str:
    """What a ring waits for, and how many of its PoPs go on at a time."""
    gates = ring.gates
    parts = [
        f"{duration(ring.options.baseline)} baseline, {duration(ring.options.soak)} soak",
        f"{gates.max_concurrent or 'as many as gates permit'} at once",
        {"pooled": "one verdict over all", "each": "a verdict each"}[gates.verdict],
    ]
    parts += [f"below {percent(100 * gates.max_load)} % of capacity"] if gates.max_load else []
    parts += ["to be approved"] if gates.approval else []
    names = {freeze.name for freeze in gates.freezes} | {event.name for event in gates.events}
    closed = sorted(names)
    parts += [_not_during(closed)] if closed else []
    return "; ".join(parts)


def _not_during(closed: Sequence[str]) -> str:
    return f"not during {', '.join(closed)}"


def campaign_text(
    record: Record,
    states: Mapping[str, str],
    waits: Sequence[str],
    schedule: Schedule | None = None,
) -> str:
    """A campaign, what it waits for, when it ends as it stands now, and what happened so far."""
    turns = {turn.pop: turn for turn in schedule.turns} if schedule else {}
    lines = [f"{record.id}  {record.tuning}: {record.state}, by {record.by}"]
    for place, ring in enumerate(record.rings, 1):
        lines.append(f"  {place} {ring.name}: {_ring(record, ring)}")
        lines += [f"      {told}" for told in told_over(ring)]
        for name, pop in ring.pops.items():
            turn = f"  {turn_text(turns[name])}" if name in turns else ""
            lines.append(f"      {name}  {_pop(pop, states)}{turn}")
    lines += [f"  waits: {text}" for text in waits]
    lines += [f"  {line}" for line in schedule_lines(schedule)] if schedule else []
    for entry in record.history:
        execution = f" [{entry.execution}]" if entry.execution else ""
        lines.append(f"  {utc(entry.at)}  {entry.told}{execution}")
    return "\n".join(lines)


def told_over(ring: RingStep) -> list[str]:
    """All that is known over the PoPs of a ring, the effect first."""
    effect = [effect_over(ring.effect)] if ring.effect else []
    loads = [told for row in ring.headroom for told in (headroom_over(row), loads_over(row))]
    return [told for told in (*effect, *loads) if told]


def effect_over(effect: RingEffect) -> str:
    """The effect over the PoPs of a ring, and what is to be expected of one PoP more."""
    return f"{effect.metric} {share(effect.ratio)} ({bounds(effect.interval)}){_over(effect)}"


def _over(effect: RingEffect) -> str:
    told = f" over {len(effect.pops)} PoPs"
    return f"{told}; the next PoP: {bounds(effect.next_pop)}" if effect.next_pop else told


def headroom_over(row: RingHeadroom) -> str:
    """How much more load is carried over the PoPs of a ring, and how many PoPs say nothing of it,
    and why."""
    limit = limit_text(row.metric, row.limit, row.definition)
    told = f"before {limit}: fewer than two PoPs tell how much more load test hosts carry"
    if row.over:
        carried = f"{more_load(row.over.ratio, 'control')} ({bounds(row.over.interval)})"
        told = f"test hosts carry {carried} before {limit}{_over(row.over)}"
    others = {
        "never near it": row.never,
        "with one group alone that passed it": row.bounded,
        "of which it is not known": row.unknown,
    }
    counted = [f"{several(len(pops), 'PoP')} {why}" for why, pops in others.items() if pops]
    return "; ".join([told, *counted])


def loads_over(row: RingHeadroom) -> str:
    """At which load groups pass the limit over the PoPs of a ring; empty where none is known."""
    told = []
    for when in ("before", "after"):
        known = {own: row.loads.get(f"{own}_{when}") for own in ("test", "control")}
        each = [f"{own} hosts at {_load(load)}" for own, load in known.items() if load]
        told += [f"{when}, {' and '.join(each)}"] if each else []
    limit = limit_text(row.metric, row.limit, row.definition)
    return f"load at which {limit}, in multiples of the usual: {'; '.join(told)}" if told else ""


def _load(own: RingLoad) -> str:
    low, high = (number(end or 0.0) for end in own.interval)
    return f"{number(own.load)} ({low} to {high}, {several(own.pops, 'PoP')})"


def _ring(record: Record, ring: RingStep) -> str:
    if ring.closed:
        return f"closed: {ring.verdict.get('reason', '')}"
    if ring.begun:
        return "under way"
    return f"{'is next' if ring is record.present else 'later'}, digest {ring.digest}"


def _pop(pop: PopStep, states: Mapping[str, str]) -> str:
    if pop.left_out:
        return f"left out: {pop.left_out}"
    if pop.rollout:
        alone = f"  {pop.alone}" if pop.alone else ""
        return f"{states.get(pop.rollout, 'unknown')}  {pop.rollout}{alone}"
    return f"refused: {pop.refused}" if pop.refused else "not begun"
