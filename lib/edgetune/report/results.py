# SPDX-License-Identifier: Apache-2.0
"""What a look found in three lines, as people ask for it: drops, health and capacity.

Drops are metrics whose name ends in ``_drops``, health is what clients and health checks see of a
host's answers, and capacity is the load that hosts carry before a metric passes its limit: as it
was measured, and as the days of hosts tell it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from edgetune.base.documents.capacity import Capacity
from edgetune.base.documents.look import Effect, Headroom, Judged, Look, Passed
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.words import Decision
from edgetune.base.numbers import bounds, more_load, number
from edgetune.intent.metrics.catalogue import metrics_of
from edgetune.judge.capacity import limit_text, measured_text, with_unit
from edgetune.report.effects import effect_text

DROPS = "_drops"
_UNTOLD = "not measured: no metric of this rollout is one of {}"
_NO_LIMIT = "not measured: no metric of this rollout has a limit"
_WAITS = "told by the look that decides"
_OLD = "not known: an earlier version took this look"
_WHY = {
    "never": "never near it",
    "short": "near it for too short to tell",
    "always": "beyond it at every load",
    "unmeasured": "not measured on enough hosts for long enough",
}


class Result(NamedTuple):
    """A line: its ``name``, and each thing that was found."""

    name: str
    found: list[str]

    @property
    def text(self) -> str:
        """All of it."""
        return "; ".join(self.found)


def results_of(found: Judged | None, measured: Capacity | None = None) -> list[Result]:
    """The three lines, each in as many sentences as it has metrics; none before a look.

    What was ``measured`` by sending hosts more is the capacity, beside what their days tell of it.
    """
    told = [sent_more_text(measured)] if measured else []
    if found is None:
        return [Result("capacity", told)] if told else []
    look, metrics = found.look, metrics_of(found.plan)
    drops = [row for row in look.metrics if row.metric.endswith(DROPS)]
    health = [row for row in look.metrics if _is_health(metrics[row.metric])]
    return [
        Result("drops", _effects(drops) or [_UNTOLD.format("drops")]),
        Result("health", _effects(health) or [_UNTOLD.format("health")]),
        Result("capacity", [*told, *_capacity(look, metrics)]),
    ]


def _is_health(metric: Metric) -> bool:
    return metric.asks_service or metric.histogram is not None


def _effects(rows: Sequence[Effect]) -> list[str]:
    return [f"{row.metric} {effect_text(row)}" for row in rows]


def _capacity(look: Look, metrics: Mapping[str, Metric]) -> Iterator[str]:
    if not any(metrics[row.metric].limit is not None for row in look.metrics):
        yield _NO_LIMIT
    elif not look.headroom:
        yield _WAITS if look.decision is Decision.WAIT else _OLD
    for row in look.headroom:
        yield headroom_text(row, metrics[row.metric])


def sent_more_text(own: Capacity) -> str:
    """What a measurement of capacity came to, or that it goes on."""
    if not own.ended:
        return "measured by sending hosts more: that is not over"
    return f"measured by sending hosts more: {measured_text(own)}"


def headroom_text(row: Headroom, metric: Metric) -> str:
    """How much more the test hosts carry, or why that is not known."""
    before = f"before {limit_text(row.metric, row.limit, metric)}"
    low, high = row.interval
    if row.ratio is not None:
        own = " relative to their own baseline" if row.since_baseline else ""
        told = f"{more_load(row.ratio, 'control')}{own} ({bounds(row.interval)})"
        return f"test hosts carry {told} {before}"
    if low is not None and low > 1:
        return f"test hosts carry {more_load(low, 'control', 'at_least')} {before}"
    if high is not None and high < 1:
        return f"test hosts carry {more_load(high, 'control', 'at_most')} {before}"
    test, control = row.groups["test_after"], row.groups["control_after"]
    if test.why == control.why == "never":
        limit = with_unit(row.limit, metric)
        up_to = number(min(own.seen or 0.0 for own in (test, control)))
        told = f"this PoP was never near the limit of {row.metric} ({limit})"
        return f"{told}, up to {up_to} times the usual load"
    told = f"test hosts {passed_text(test)}, control hosts {passed_text(control)}"
    if passed_text(test) == passed_text(control):
        told = f"both groups {passed_text(test)}"
    return f"not known {before}: {told}"


def passed_text(own: Passed) -> str:
    """Where a group passed the limit, or why that is not known."""
    if own.load is None or own.bounds is None:
        if not own.seen or own.why not in ("never", "short"):
            return _WHY[own.why]
        return f"{_WHY[own.why]}, up to {number(own.seen)} times the usual load"
    low, high = own.bounds
    return f"at {number(own.load)} times the usual load ({number(low)} to {number(high)})"
