# SPDX-License-Identifier: Apache-2.0
"""The report of a campaign: rings, PoPs, verdicts, and the effect by PoP as a forest plot; and that
of a dry run: who is touched when, and which constraint costs most."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.campaign import PopEffect, PopStep, Record, RingStep
from edgetune.base.documents.head import PROMOTED, Head
from edgetune.base.documents.look import Effect
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.schedule import Schedule, Turn
from edgetune.base.durations import roughly, utc
from edgetune.base.numbers import share
from edgetune.base.sanitize import command
from edgetune.intent.campaign import Ring, ShownCampaign
from edgetune.report.campaign import (
    ring_terms,
    schedule_lines,
    told_over,
    turn_length,
    turn_text,
)
from edgetune.report.effects import effect_text, said_of
from edgetune.report.files import page_of
from edgetune.report.headline import Next, headline
from edgetune.report.page import render
from edgetune.report.pictures import Strip, forest
from edgetune.report.results import Result

_Shown = dict[str, object]
"""A ring, a PoP of it, or (without a ``rollout``) all of them together, as the page has it."""
_TONES = {"complete": "improved", "held": "inconclusive", "aborted": "degraded"}


@dataclass(frozen=True)
class CampaignMaterial:
    """A campaign's record with the ``heads`` of its rollouts by id.

    ``effects`` holds by PoP what the newest look found of the intent's metric, ``results`` all that
    it found in a few lines, and ``pooled`` by ring what the verdict over all of its PoPs found;
    ``metrics`` are the definitions of these.
    ``files`` are the pages that there are.
    ``waits`` and ``missing`` are sentences: what it waits for, and what is not known. ``schedule``
    is that of what is left; None where it does not go on.
    """

    record: Record
    heads: Mapping[str, Head]
    effects: Mapping[str, Effect]
    pooled: Mapping[str, Effect]
    metrics: Mapping[str, Metric]
    waits: Sequence[str]
    missing: Sequence[str]
    files: Collection[str]
    made: float
    results: Mapping[str, Sequence[Result]] = field(default_factory=dict)
    schedule: Schedule | None = None

    @property
    def turns(self) -> Mapping[str, Turn]:
        """When which PoP has its turn."""
        return {turn.pop: turn for turn in self.schedule.turns} if self.schedule else {}


def campaign_page(material: CampaignMaterial) -> str:
    """The whole page."""
    record = material.record
    # All rings have one axis, so that they can be compared.
    own = {("pop", name): effect for name, effect in material.effects.items()}
    pooled = {("ring", name): effect for name, effect in material.pooled.items()}
    every = {**own, **pooled}
    drawn = forest([*every.values()], material.metrics)
    strips = dict(zip(every, drawn.strips))
    return render(
        "campaign.html",
        material.made,
        record=record,
        tone=_TONES.get(record.state, ""),
        sentence=_sentence(record, material.heads),
        waits=material.waits,
        schedule=schedule_lines(material.schedule) if material.schedule else [],
        missing=material.missing,
        steps=list(_steps(record)),
        rings=[_ring(ring, record, material, strips) for ring in record.rings],
        forest=drawn,
    )


def planned_page(shown: ShownCampaign, made: float) -> str:
    """The whole page of a campaign that has not begun."""
    schedule = shown.schedule
    turns = {turn.pop: turn for turn in schedule.turns}
    return render(
        "campaign_plan.html",
        made,
        name=shown.campaign.name,
        tuning=shown.campaign.tuning,
        digest=shown.campaign.digest,
        pops=sum(map(len, shown.pops.values())),
        closed=shown.closed,
        schedule=schedule_lines(schedule, with_costs=False),
        costs=[(own.constraint, roughly(own.seconds)) for own in schedule.costs],
        rings=[
            {"name": ring.name, "terms": ring_terms(ring), "rows": _planned(ring, shown, turns)}
            for ring in shown.campaign.rings
        ],
    )


def _planned(ring: Ring, shown: ShownCampaign, turns: Mapping[str, Turn]) -> list[_Shown]:
    """Its PoPs in the order of their turns; those without one come last."""
    names = sorted(shown.pops[ring.name], key=lambda name: _begins(turns.get(name)))
    return [_turn_row(name, turns.get(name), shown.refused.get(name, "")) for name in names]


def _begins(turn: Turn | None) -> float:
    return turn.begins[1] if turn else math.inf


def _turn_row(name: str, turn: Turn | None, refused: str) -> _Shown:
    told = [turn.load] if turn and turn.load else []
    told += [f"refused now: {refused}"] if refused else []
    row = {"name": name, "begins": None, "ends": None, "takes": "", "told": "; ".join(told)}
    if turn is None or not math.isfinite(turn.ends[1]):
        return {**row, "takes": "has no end: freezes" if turn else "not known"}
    times = {"begins": turn.begins[1], "ends": turn.ends[1], "takes": turn_length(turn)}
    return {**row, **times}


def _sentence(record: Record, heads: Mapping[str, Head]) -> str:
    """How far it is, and why it stopped where it did."""
    states = [heads[pop.rollout].state for pop in record.pops.values() if pop.rollout in heads]
    done = sum(state in PROMOTED for state in states)
    told = f"{done} of {len(record.pops)} PoPs have the tuning"
    left_out = sum(bool(pop.left_out) for pop in record.pops.values())
    told += f", {left_out} left out" if left_out else ""
    why = next((e.what for e in reversed(record.history) if e.what.startswith(record.state)), "")
    return f"{told}; {why}" if why else told


def _steps(record: Record) -> list[Next]:
    id = record.id
    if record.state == "running":
        moves = command("advance_campaign", campaign=id)
        return [
            Next("The rule advance_campaigns moves it on by itself. To do it now:", moves),
            Next("To let no further rollout begin:", command("hold_campaign", campaign=id)),
        ]
    if record.state == "held":
        accepts = command("resume_campaign", campaign=id, accept="true")
        overrule = Next("To go on although the ring's verdict does not promote:", accepts)
        return [
            Next("To go on, once its cause is mended:", command("resume_campaign", campaign=id)),
            # The verdict of a ring is all that keeps it from being left.
            *([overrule] if record.present and record.present.verdict else []),
            Next("To end it:", command("abort_campaign", campaign=id)),
        ]
    return [
        Next("Nothing is left to do. The report of each rollout has the command to take it back.")
    ]


def _ring(
    ring: RingStep,
    record: Record,
    material: CampaignMaterial,
    strips: Mapping[tuple[str, str], Strip | None],
) -> _Shown:
    known = [material.effects[name] for name in ring.pops if name in material.effects]
    alone = ring.effect.pops if ring.effect else {}
    turns = material.turns
    rows = [
        _row(name, pop, material, strips.get(("pop", name)), alone.get(name), turns.get(name))
        for name, pop in ring.pops.items()
    ]
    rows += _together(ring, material, strips.get(("ring", ring.name)))
    metric = material.metrics[known[0].metric] if known else None
    return {
        "name": ring.name,
        "stands": _stands(ring, record),
        "begun": ring.begun,
        "closed": ring.closed,
        "approval": _approval(ring),
        "metric": metric.title if metric else "",
        "lower_is_better": not metric or metric.better == "lower",
        "drawn": any(row["strip"] for row in rows),
        "over": told_over(ring),
        "rows": rows,
    }


def _stands(ring: RingStep, record: Record) -> str:
    reason = ring.verdict.get("reason", "")
    if ring.closed:
        accepted = f", accepted by {ring.accepted}" if ring.accepted else ""
        return f"Closed{accepted}: {reason}."
    if ring.begun:
        return f"Under way: {reason}." if reason else "Under way."
    return "Is next." if ring is record.present else "Not begun."


def _approval(ring: RingStep) -> str:
    if ring.approved_by:
        when = f" {utc(ring.approved_at)}" if ring.approved_at else ""
        why = f": {ring.approved_because}" if ring.approved_because else ""
        return f"Approved{when} by {ring.approved_by}{why}."
    return "Nobody had to approve it." if ring.begun else ""


def _row(
    name: str,
    pop: PopStep,
    material: CampaignMaterial,
    strip: Strip | None,
    alone: PopEffect | None,
    turn: Turn | None,
) -> _Shown:
    head = material.heads.get(pop.rollout)
    told = headline(head) if head else None
    effect = material.effects.get(name)
    page = page_of(pop.rollout)
    likely = f", likely {share(alone.shrunken)}" if alone else ""
    return {
        "name": name,
        "rollout": pop.rollout,
        "page": page if page in material.files else "",
        "state": "; ".join([_state(pop, head), *([turn_text(turn)] if turn else [])]),
        "verdict": told.verdict if told else "no verdict",
        "tone": told.tone if told else "",
        "effect": (_effect(effect, material.metrics) if effect else "not measured") + likely,
        "results": material.results.get(name, []),
        "strip": strip,
    }


def _together(ring: RingStep, material: CampaignMaterial, strip: Strip | None) -> list[_Shown]:
    effect = material.pooled.get(ring.name)
    if effect is None:
        return []
    verdict = str(ring.verdict.get("verdict", ""))
    words = verdict.replace("_", " ") or "no verdict"
    told = _effect(effect, material.metrics)
    row = {"name": "all PoPs", "rollout": "", "page": "", "state": "one test", "strip": strip}
    return [{**row, "verdict": words, "tone": verdict, "effect": told, "results": []}]


def _state(pop: PopStep, head: Head | None) -> str:
    if pop.left_out:
        return f"left out: {pop.left_out}"
    if head:
        state = head.state.replace("_", " ")
        return f"{state}: {pop.alone}" if pop.alone else state
    if pop.rollout:
        return "its record is gone or cannot be read"
    return f"refused: {pop.refused}" if pop.refused else "not begun"


def _effect(effect: Effect, metrics: Mapping[str, Metric]) -> str:
    said = said_of(effect, metrics[effect.metric])
    return ", ".join(filter(None, [effect_text(effect), said]))
