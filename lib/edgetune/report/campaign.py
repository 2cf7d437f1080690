# SPDX-License-Identifier: Apache-2.0
"""What people read of campaigns in a terminal, as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgetune.base.documents.campaign import PopStep, Record, RingEffect, RingStep
from edgetune.base.durations import duration, utc
from edgetune.intent.campaign import Ring, ShownCampaign


def definition_text(shown: ShownCampaign) -> str:
    """A campaign as it is shown before its first rollout."""
    campaign, closed, refused = shown.campaign, shown.closed, shown.refused
    lines = [f"Campaign {shown.id or campaign.name}: {campaign.tuning}"]
    lines += [f"  every ring: {_not_during(closed)} (configuration)"] if closed else []
    for number, ring in enumerate(campaign.rings, 1):
        lines += [f"  {number} {ring.name}: {_terms(ring)}"]
        for pop in shown.pops[ring.name]:
            lines.append(
                f"      {pop}" + (f"  refused now: {refused[pop]}" if pop in refused else "")
            )
    return "\n".join(lines)


def _terms(ring: Ring) -> str:
    gates = ring.gates
    parts = [
        f"{duration(ring.options.baseline)} baseline, {duration(ring.options.soak)} soak",
        f"{gates.max_concurrent} at once",
        {"pooled": "one verdict over all", "each": "a verdict each"}[gates.verdict],
    ]
    parts += ["to be approved"] if gates.approval else []
    names = {freeze.name for freeze in gates.freezes} | {event.name for event in gates.events}
    closed = sorted(names)
    parts += [_not_during(closed)] if closed else []
    return "; ".join(parts)


def _not_during(closed: Sequence[str]) -> str:
    return f"not during {', '.join(closed)}"


def campaign_text(record: Record, states: Mapping[str, str], waits: Sequence[str]) -> str:
    """A campaign, what it waits for, and what happened to it so far."""
    lines = [f"{record.id}  {record.tuning}: {record.state}, by {record.by}"]
    for number, ring in enumerate(record.rings, 1):
        lines.append(f"  {number} {ring.name}: {_ring(record, ring)}")
        effect = ring.effect
        lines += [f"      {effect_over(effect)}"] if effect else []
        lines += [f"      {name}  {_pop(pop, states)}" for name, pop in ring.pops.items()]
    lines += [f"  waits: {text}" for text in waits]
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
