# SPDX-License-Identifier: Apache-2.0
"""What a baseline and the blocks of a soak tell of one metric: a number for each host, whether the
metric counts events, or is a quantile of a histogram, or the mean of several.

Every array has one number for each host, NaN where that is not known.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from edgetune.base.documents.baseline import Baseline, Block, Part
from edgetune.base.documents.metric import Histogram, Metric
from edgetune.judge.measured import (
    COUNTS,
    EVENTS,
    EXPOSURE,
    halves_of,
    is_rare,
    rates_of,
    rates_under,
    rows_of,
)
from edgetune.judge.quantiles import bounds_of, counts_in, log_error, mean_of, quantile
from edgetune.judge.standardise import RATIOS, change

Array = Any
Counts = Mapping[str, Array]
"""Requests in buckets, by the reading of a histogram; each (hosts, buckets)."""
ALL = slice(None)


class Rates(ABC):
    """One metric; ``span`` is a part of the blocks."""

    @abstractmethod
    def before(self) -> Array:
        """The logarithm of each host's rate in the baseline."""

    @abstractmethod
    def halves(self) -> tuple[Array, Array]:
        """The same in both halves of it."""

    @abstractmethod
    def after(self, span: slice, test: Array) -> Array:
        """The same in the soak under each of ``RATIOS``, with that left in: shape (hosts, ratios).

        ``test`` tells the test hosts.
        """

    @abstractmethod
    def log_ratios(self) -> Array:
        """The logarithm of how the rate of each host changed, for people to read."""

    @abstractmethod
    def levels(self) -> tuple[Array, Array]:
        """The metric itself, in the baseline and in the soak."""

    @abstractmethod
    def events_before(self) -> Array:
        """How many events or requests each host had in the baseline."""

    @abstractmethod
    def events(self, span: slice = ALL) -> Array:
        """How many it had in the soak."""

    @abstractmethod
    def is_measured(self) -> bool:
        """Whether any host has it in the baseline, be it zero."""

    def errors(self) -> tuple[Array, Array] | None:
        """The standard errors of the logarithms before and after by how few requests there were;
        None of what is no quantile."""
        return None


def rates_for(
    metric: Metric,
    name: str,
    baseline: Baseline,
    blocks: Sequence[Block],
    hosts: Sequence[str],
    strata: Array,
) -> Rates:
    """The rates of a metric of this name. ``strata`` numbers that of each host."""
    if metric.quantiles:
        return _Quantiles(metric.quantiles, baseline, blocks, hosts)
    return _Counts(name, baseline, blocks, hosts, strata)


def group_rate(metric: Metric, name: str, part: Part, hosts: Sequence[str]) -> float:
    """The level of hosts together in a document; unknown ones have no part in it."""
    if metric.quantiles:
        counts = {needed.of: _counts(needed, part, hosts) for needed in metric.quantiles}
        return _together(metric.quantiles, counts)
    return _rate(rows_of([part], name, hosts)[0])


def group_halves(
    metric: Metric, name: str, baseline: Baseline, hosts: Sequence[str]
) -> tuple[float, float]:
    """The level of hosts together in both halves of a baseline."""
    parts = metric.quantiles
    if parts:
        halves = {part.of: half_counts(part, baseline, hosts) for part in parts}
        first, second = (
            _together(parts, {of: counts[half] for of, counts in halves.items()}) for half in (0, 1)
        )
        return first, second
    first, second = map(_rate, halves_of(baseline, name, hosts))
    return first, second


def _together(quantiles: Sequence[Histogram], counts: Counts) -> float:
    """What the requests of hosts together tell."""
    sums = {of: rows.sum(axis=0, keepdims=True) for of, rows in counts.items()}
    return float(_level(quantiles, sums)[0])


def _level(quantiles: Sequence[Histogram], counts: Counts) -> Array:
    """A quantile of each row of counts, or the mean of several."""
    values = [quantile(counts[part.of], part) for part in quantiles]
    return mean_of(values, [part.weight for part in quantiles])


def _rate(rows: Array) -> float:
    events, exposure = (float(np.nansum(rows[:, column])) for column in (EVENTS, EXPOSURE))
    return events / exposure if exposure > 0 else math.nan


class _Counts(Rates):
    """Of a metric that counts events, or of a gauge: what its rows tell."""

    def __init__(
        self,
        name: str,
        baseline: Baseline,
        blocks: Sequence[Block],
        hosts: Sequence[str],
        strata: Array,
    ) -> None:
        self._rows = rows_of([baseline, *blocks], name, hosts)
        self._halves = halves_of(baseline, name, hosts)
        self._strata, self._rare = strata, is_rare(self._rows[0])

    def before(self) -> Array:
        return rates_of(self._rows[0], self._strata, rare=self._rare)

    def halves(self) -> tuple[Array, Array]:
        first, second = (rates_of(half, self._strata, rare=self._rare) for half in self._halves)
        return first, second

    def after(self, span: slice, test: Array) -> Array:
        return rates_under(self._rows[1:][span].sum(axis=0), self._strata, test, self._rare)

    def log_ratios(self) -> Array:
        # What tests take for it where events are rare is a difference of counts.
        was, now = (rates_of(sums, self._strata) for sums in self._both)
        return change(was, now)

    def levels(self) -> tuple[Array, Array]:
        was, now = map(_per_exposure, self._both)
        return was, now

    def events_before(self) -> Array:
        return self._rows[0, :, COUNTS]

    def events(self, span: slice = ALL) -> Array:
        return np.nansum(self._rows[1:][span][:, :, COUNTS], axis=0)

    def is_measured(self) -> bool:
        return bool(np.nansum(self._rows[0, :, EXPOSURE]) > 0)

    @property
    def _both(self) -> tuple[Array, Array]:
        return self._rows[0], self._rows[1:].sum(axis=0)


def _per_exposure(rows: Array) -> Array:
    exposed = np.where(rows[:, EXPOSURE] > 0, rows[:, EXPOSURE], np.nan)
    return rows[:, EVENTS] / exposed


class _Quantiles(Rates):
    """Of histograms. A hypothesis that all requests take so many times as long shifts the logarithm
    of a quantile by that of the ratio, whatever the ratio is, and that of a mean by as much."""

    def __init__(
        self,
        quantiles: Sequence[Histogram],
        baseline: Baseline,
        blocks: Sequence[Block],
        hosts: Sequence[str],
    ) -> None:
        self._parts, self._baseline, self._blocks, self._hosts = quantiles, baseline, blocks, hosts

    def before(self) -> Array:
        return np.log(_level(self._parts, self._before))

    def halves(self) -> tuple[Array, Array]:
        first, second = (np.log(_level(self._parts, half)) for half in self._halves)
        return first, second

    def after(self, span: slice, test: Array) -> Array:
        logs = np.log(_level(self._parts, self._after(span)))
        return np.repeat(logs[:, None], len(RATIOS), axis=1)

    def log_ratios(self) -> Array:
        return change(self.before(), np.log(_level(self._parts, self._after())))

    def levels(self) -> tuple[Array, Array]:
        return _level(self._parts, self._before), _level(self._parts, self._after())

    def events_before(self) -> Array:
        return self._fewest(self._before)

    def events(self, span: slice = ALL) -> Array:
        return self._fewest(self._after(span))

    def is_measured(self) -> bool:
        return bool(np.isfinite(self.before()).any())

    def errors(self) -> tuple[Array, Array]:
        return self._error(self._before), self._error(self._after())

    def _error(self, counts: Counts) -> Array:
        # Quantiles of the same requests err together: their errors add up, at most.
        return sum(part.weight * log_error(counts[part.of], part) for part in self._parts)

    def _fewest(self, counts: Counts) -> Array:
        """The requests of that histogram which has the fewest of a host."""
        return np.minimum.reduce([rows.sum(axis=1) for rows in counts.values()])

    @cached_property
    def _halves(self) -> tuple[Counts, Counts]:
        both = {part.of: half_counts(part, self._baseline, self._hosts) for part in self._parts}
        first, second = ({of: counts[half] for of, counts in both.items()} for half in (0, 1))
        return first, second

    @property
    def _before(self) -> Counts:
        first, second = self._halves
        return {of: first[of] + second[of] for of in first}

    def _after(self, span: slice = ALL) -> Counts:
        return {part.of: self._soaked(part, span) for part in self._parts}

    def _soaked(self, part: Histogram, span: slice) -> Array:
        counts = np.zeros((len(self._hosts), len(bounds_of(part))))
        for block in self._blocks[span]:
            counts += _counts(part, block, self._hosts)
        return counts


def half_counts(part: Histogram, baseline: Baseline, hosts: Sequence[str]) -> tuple[Array, Array]:
    """What each host has in each bucket in both halves of a baseline, (hosts, buckets) each."""
    where, kept = f"histograms.{part.of}", baseline.histograms.get(part.of, [])
    first, second = kept if len(kept) == 2 else (None, None)
    width = len(bounds_of(part))
    return (
        counts_in(first, baseline.hosts, hosts, width, where),
        counts_in(second, baseline.hosts, hosts, width, where),
    )


def block_counts(histogram: Histogram, block: Block, hosts: Sequence[str]) -> Array:
    """What each host has in each bucket in a block, (hosts, buckets)."""
    kept, where = block.histograms.get(histogram.of), f"histograms.{histogram.of}"
    return counts_in(kept, block.hosts, hosts, len(bounds_of(histogram)), where)


def _counts(histogram: Histogram, part: Part, hosts: Sequence[str]) -> Array:
    if isinstance(part, Baseline):
        first, second = half_counts(histogram, part, hosts)
        return first + second
    return block_counts(histogram, part, hosts)
