# SPDX-License-Identifier: Apache-2.0
"""What people read of campaigns in a terminal, as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from edgetune.base.documents.campaign import PopStep, Record, RingEffect, RingStep
from edgetune.base.documents.schedule import Schedule, Turn
from edgetune.base.durations import duration, roughly, utc
from edgetune.intent.campaign import Ring, ShownCampaign

_MUCH = 0.1
"""The share of a campaign's time that is worth a proposal."""


def definition_text(shown: ShownCampaign) -> str:
    """A campaign as it is shown before its first rollout."""
    campaign, closed, refused = shown.campaign, shown.closed, shown.refused
    turns = {turn.pop: turn for turn in shown.schedule.turns}
    lines = [f"Campaign {shown.id or campaign.name}: {campaign.tuning}"]
    lines += [f"  every ring: {_not_during(closed)} (configuration)"] if closed else []
    for number, ring in enumerate(campaign.rings, 1):
        lines += [f"  {number} {ring.name}: {_terms(ring)}"]
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
    least, most = (roughly(end - start) for start, end in zip(turn.begins, turn.ends))
    return f"{begins} to {ends} ({least if least == most else f'{least} to {most}'})"


def schedule_lines(schedule: Schedule) -> list[str]:
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
    if schedule.costs:
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


def _terms(ring: Ring) -> str:
    gates = ring.gates
    parts = [
        f"{duration(ring.options.baseline)} baseline, {duration(ring.options.soak)} soak",
        f"{gates.max_concurrent or 'as many as gates permit'} at once",
        {"pooled": "one verdict over all", "each": "a verdict each"}[gates.verdict],
    ]
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
    for number, ring in enumerate(record.rings, 1):
        lines.append(f"  {number} {ring.name}: {_ring(record, ring)}")
        effect = ring.effect
        lines += [f"      {effect_over(effect)}"] if effect else []
        for name, pop in ring.pops.items():
            turn = f"  {turn_text(turns[name])}" if name in turns else ""
            lines.append(f"      {name}  {_pop(pop, states)}{turn}")
    lines += [f"  waits: {text}" for text in waits]
    lines += [f"  {line}" for line in schedule_lines(schedule)] if schedule else []
    for entry in record.history:
        execution = f" [{entry.execution}]" if entry.execution else ""
        lines.append(f"  {utc(entry.at)}  {entry.told}{execution}")
    return "\n".join(lines)


def effect_over(effect: RingEffect) -> str:
    """The effect over the PoPs of a ring, and what is to be expected of one PoP more."""
    told = f"{effect.metric} x{effect.ratio:.2f} ({_range(effect.interval)})"
    told += f" over {len(effect.pops)} PoPs"
    return f"{told}; the next PoP: {_range(effect.next_pop)}" if effect.next_pop else told


def _range(bounds: Sequence[float | None]) -> str:
    low, high = bounds
    upper = "no upper bound" if high is None else f"{high:.2f}"
    return f"{low or 0.0:.2f} to {upper}"


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
