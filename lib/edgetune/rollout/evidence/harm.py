# SPDX-License-Identifier: Apache-2.0
"""Which change made PoPs worse after it was promoted: rates by day, from samples that are kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgetune.base import clock
from edgetune.base.documents.metric import Metric
from edgetune.base.durations import DAY
from edgetune.base.errors import EdgetuneError, InputError, StoreError
from edgetune.rollout.context import Context
from edgetune.rollout.record.promotions import Promotion

if TYPE_CHECKING:
    from edgetune.judge.trace import Suspect

Array = Any

HARMS = ("packet_drops", "listen_drops", "health_slowest", "health_p99")
"""Metrics in which harm is looked for."""
MONTH = 28
"""Days that are looked at, if samples are kept as long."""
_STEP, _BEFORE = 21600.0, 600.0
"""Seconds between the samples that are read, and before each such moment."""
_HALF = 0.5
_ONE_MORE = 0.5
"""Events that are added, so that none at all has a logarithm."""


def days_until_today(context: Context) -> range:
    """The whole days whose samples are kept, the newest last, in days since the epoch (UTC)."""
    today = int(clock.wall() // DAY)
    return range(today - min(MONTH, int(context.config.sample_retention // DAY)), today)


class DailyRates:
    """What rates PoPs had on whole days, each read once.

    ``unknown`` says by PoP why its samples are not known; such a PoP is asked again the next day.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], Mapping[str, float]] = {}
        self.unknown: dict[str, str] = {}

    def read(self, context: Context, days: range, seconds: float = math.inf) -> bool:
        """Read what is not known yet, and begin nothing more after so many seconds: whether all is
        known."""
        ends = clock.monotonic() + seconds
        self._known = {key: own for key, own in self._known.items() if key[1] in days}
        for pop in context.known_inventory.pop_names():
            for day in days:
                if (pop, day) in self._known or pop in self.unknown:
                    continue
                if clock.monotonic() >= ends:
                    return False
                try:
                    self._known[pop, day] = _rates(context, pop, day)
                except StoreError:
                    raise
                except EdgetuneError as error:
                    self.unknown[pop] = str(error)
        return True

    def of(self, pops: Sequence[str], days: range, metric: str) -> Array:
        """The logarithms of the rates of a metric, of shape (pops, days); NaN is not known."""
        import numpy as np

        return np.array(
            [
                [self._known.get((pop, day), {}).get(metric, math.nan) for day in days]
                for pop in pops
            ]
        )


def _rates(context: Context, pop: str, day: int) -> dict[str, float]:
    """By metric the logarithm of the rate of all hosts; nothing of one that was measured in less
    than half of their time."""
    from edgetune.judge.series import read_window

    start, end = day * float(DAY), (day + 1) * float(DAY)
    hosts = [host.name for host in context.known_inventory.pop(pop).hosts]
    known = context.catalogue
    metrics = {name: known[name] for name in HARMS if name in known}
    # Of a metric that is counted per packet here and per second there, days cannot be compared.
    per = {name: own.per_if_known for name, own in metrics.items() if own.per_if_known}
    samples = context.samples.thinned(pop, start, end, _STEP, _BEFORE)
    window = read_window(samples, hosts, start, end, _STEP, metrics, per)
    found = {
        name: _rate(metrics[name], own.events, own.exposure) for name, own in window.metrics.items()
    }
    return {name: rate for name, rate in found.items() if math.isfinite(rate)}


def _rate(metric: Metric, events: Array, exposure: Array) -> float:
    import numpy as np

    inside = np.isfinite(events) & np.isfinite(exposure) & (exposure > 0)
    if inside.mean() < _HALF:
        return math.nan
    more = _ONE_MORE if metric.counters else 0.0
    total = float(events[inside].sum()) + more
    return math.log(total / float(exposure[inside].sum())) if total > 0 else math.nan


def traced(
    context: Context, rates: DailyRates, changes: Sequence[Promotion], days: range, metric: str = ""
) -> list[tuple[str, Suspect]]:
    """The changes of this time that may have done harm, with the metric, the likeliest first; of
    one ``metric`` where it is given.

    A change that explains several metrics is named with each. InputError of a metric in which no
    harm is looked for.
    """
    if metric and metric not in HARMS:
        raise InputError("parameter", "metric", f"is none of {', '.join(HARMS)}")
    from edgetune.judge.trace import suspects

    pops, found = context.known_inventory.pop_names(), []
    columns = _columns(changes, pops, days)
    looked_at = [name for name in HARMS if metric in ("", name) and name in context.catalogue]
    for name in looked_at:
        sign = context.catalogue[name].sign
        found += [(name, own) for own in suspects(sign * rates.of(pops, days, name), columns)]
    tried = len({name for name, _ in found})
    # Each metric is one chance more to accuse somebody.
    every = [(name, replace(own, p=min(1.0, own.p * tried))) for name, own in found]
    return sorted(every, key=lambda row: (not row[1].is_accused, row[1].p, -row[1].votes))


def _columns(changes: Sequence[Promotion], pops: Sequence[str], days: range) -> list[Any]:
    import numpy as np

    from edgetune.judge.trace import Change

    made = []
    for tuning in dict.fromkeys(own.tuning for own in changes):
        by_pop = {own.pop: own for own in changes if own.tuning == tuning}
        since, until = (
            np.array([getattr(by_pop[pop], name) if pop in by_pop else none for pop in pops]) / DAY
            for name, none in (("since", math.nan), ("until", math.inf))
        )
        # On the day on which it came, or went, it stood in part.
        made.append(Change(tuning, np.ceil(since) - days.start, np.floor(until) - days.start))
    return made
