# SPDX-License-Identifier: Apache-2.0
"""Changes in words that nobody reads backwards: a direction, both levels, and a share."""

from __future__ import annotations

from edgetune.base.documents.effect import Expected
from edgetune.base.documents.look import Effect
from edgetune.base.documents.metric import READINGS, Metric
from edgetune.base.names import several
from edgetune.base.numbers import bounds, number, share
from edgetune.judge.verdict import UNALIKE, measured_text


def level(value: float | None, metric: Metric, exposure: str) -> str:
    """A rate as a number of its unit (see ``unit_of``)."""
    return "unknown" if value is None else number(value * metric.unit_of(exposure).scale)


def unit_of(metric: Metric, exposure: str) -> str:
    """What stands behind a level in a sentence."""
    return "on average" if exposure == READINGS else metric.unit_of(exposure).text


def moved(before: float | None, after: float | None, unit: str, scale: float = 1.0) -> str:
    """How a level went: "fell from 4.1 to 1.3 per million packets (−68 %)".

    Both are shown ``scale`` times as large, in ``unit``; None is unknown.
    """
    if before is None or after is None:
        told = [("before", before), ("after", after)]
        known = [f"{number(v * scale)} {unit} {when}" for when, v in told if v is not None]
        return "; ".join(["change not known", *known])
    old, new = number(before * scale), number(after * scale)
    if old == new:
        return f"stayed at {old} {unit}"
    verb = "rose" if after > before else "fell"
    beside = f" ({share(after / before)})" if before else ""
    return f"{verb} from {old} to {new} {unit}{beside}"


def moved_per(before: float | None, after: float | None, metric: Metric, exposure: str) -> str:
    """The same of rates per exposure."""
    return moved(before, after, unit_of(metric, exposure), metric.unit_of(exposure).scale)


def caveat(row: Effect) -> str:
    """Why there is no effect to tell, or what of it was hardly measured; else nothing."""
    told = measured_text(row.measured)
    return f"not compared: {told or UNALIKE}" if row.known_ratio is None else told


def expected_text(own: Expected) -> str:
    """What a tuning did over PoPs, and what is to be expected of one PoP more."""
    beyond = f" ({bounds(own.interval)})" if own.interval else ""
    told = f"{own.metric} {share(own.ratio)}{beyond} on {several(len(own.likely), 'PoP')}"
    named = "hardware without a name" if own.hardware == "any" else own.hardware
    told += f" with {named}" if named else ""
    return f"{told}; on the next one {bounds(own.next_pop)}" if own.next_pop else told


def effect_text(row: Effect) -> str:
    """The effect that a look found, with its interval and its caveat."""
    ratio = row.known_ratio
    found = "" if ratio is None else f"{share(ratio)} ({bounds(row.interval)})"
    return "; ".join(filter(None, [found, caveat(row)]))


def said_of(row: Effect, metric: Metric) -> str:
    """Whether it is an improvement; "no clear difference" while 1 is within its interval. Where
    nothing ever happened, or is known, there is nothing to compare."""
    ratio, (low, high) = row.known_ratio, row.interval
    if ratio is None or not any(row.levels):
        return "" if ratio is None else "nothing happened"
    if (low is None or low <= 1) and (high is None or high >= 1):
        return "no clear difference"
    return "better" if (ratio < 1) == (metric.better == "lower") else "worse"
