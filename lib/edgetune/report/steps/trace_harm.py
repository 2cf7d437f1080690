# SPDX-License-Identifier: Apache-2.0
"""Which change made PoPs worse after it was promoted."""

from __future__ import annotations

from dataclasses import asdict
from typing import TypedDict

from edgetune.base.durations import DAY, duration, utc
from edgetune.base.names import several
from edgetune.base.sanitize import command
from edgetune.report.findings import WIDTH, folded
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.harm import DailyRates, days_until_today, traced
from edgetune.rollout.record.heads import living_heads
from edgetune.rollout.record.promotions import promotions_of, retirable

_LONGEST = 480.0
"""Seconds in which samples are read; the action may take 600."""


class TraceResult(TypedDict):
    """The changes by metric, the likeliest first (``judge.trace.Suspect``), and which tunings are
    ``accused``; ``unknown`` says by PoP why its source does not tell its samples."""

    suspects: list[dict[str, object]]
    accused: list[str]
    unknown: dict[str, str]
    message: str
    text: str


def trace_harm(context: Context, metric: str = "") -> TraceResult:
    """Rank the tunings of the last month by how well they explain where and since when PoPs are
    worse, in one ``metric`` or all in which harm is looked for.

    InputError of a metric that is none of these. StoreError if the samples cannot be read.
    """
    from edgetune.judge.trace import evidence

    rates, days = DailyRates(), days_until_today(context)
    changes = promotions_of(context, living_heads(context))
    is_whole = rates.read(context, days, _LONGEST)
    found = traced(context, rates, changes, days, metric)
    accused = {own.tuning: None for _, own in found if own.is_accused}
    lines = []
    for name, own in found:
        begin = "harm  " if own.is_accused else "  "
        lines += folded(evidence(name, context.catalogue[name], own), WIDTH, begin, "    ")
    for one in retirable(context, living_heads(context)) if accused else ():
        if one.tuning in accused:
            lines.append(command("retire_tuning", pop=one.pop, tuning=one.tuning))
    told = ", ".join(accused) or "no change explains it"
    since = utc(days.start * DAY)
    left = "" if is_whole else f"; of some PoPs none were read in {duration(_LONGEST)}"
    message = f"{told}: {several(len(changes), 'promotion')}, samples since {since}{left}"
    return {
        "suspects": [{"metric": name, **asdict(own)} for name, own in found],
        "accused": [*accused],
        "unknown": rates.unknown,
        "message": message,
        "text": "\n".join([message, *lines, *rates.unknown.values()]),
    }
