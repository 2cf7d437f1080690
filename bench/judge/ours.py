# SPDX-License-Identifier: Apache-2.0
"""edgetune's own judge, on the arrays of a simulated rollout.

The same functions that a look calls, with fewer draws (a test is as valid with them, and a
little weaker) and without the documents of the record around them.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.judge.production import judge_soak
from bench.judge.scenarios import SOAK, Replicate, Series
from edgetune.base.documents.baseline import Elasticity
from edgetune.base.documents.plan import Groups
from edgetune.intent.plan import SHARE_OF_WORK
from edgetune.judge.comparison import Column, harm, work_margin
from edgetune.judge.elasticity import elasticities, explained
from edgetune.judge.permutation import Draws, budget, make_draws, spent, take_out
from edgetune.judge.power import detectable
from edgetune.judge.series import Series as Counted
from edgetune.judge.standardise import (
    RARE,
    change,
    dispersion,
    expected,
    filled,
    lasting,
    log_rates,
    observed_and_expected,
    smallest_unit,
    weights,
)

Array = Any

ALPHA = 0.05
DRAWS = 1999
CLEAR = 0.2
"""As ``Prospect.is_clear``."""
ENDS = (0, 1)
"""Of what load explains."""
MARGINS = {"health": 0.2, "retransmits": 0.2, "cpu": 0.1, "packets": SHARE_OF_WORK.margin}
"""What the catalogue's tunings let their guards rise by; drops may not rise at all. Of packets a
loss is harm."""


class Ours:
    """Group-sequential permutation test over all metrics and windows."""

    def __init__(
        self, name: str = "edgetune", whole: bool = False, metrics: Sequence[str] = ()
    ) -> None:
        """``whole`` takes all of each host's baseline off (theta 1); ``metrics`` looks at these
        only."""
        self.name = name
        self._whole = whole
        self._metrics = metrics

    def decide(self, replicate: Replicate, looks: Sequence[int]) -> int | None:
        """The first look at which anything is proven to be worse."""
        groups = self._groups(replicate)
        draws, is_clear = len(groups.draws), groups.is_clear
        alive = [np.ones(draws, dtype=bool) for _ in ENDS]
        for number, minute in enumerate(looks, start=1):
            share = spent(ALPHA, minute / looks[-1], draws, len(looks), is_clear)
            for end in ENDS:
                columns = groups.columns(looks, number, end)
                scores = harm(groups.statistics(*columns), columns).max(axis=1)
                alive[end] = take_out(scores, alive[end], budget(ALPHA, share, draws))
            if not any(own[0] for own in alive):
                return minute
        return None

    def improved(self, replicate: Replicate, looks: Sequence[int]) -> bool:
        """Whether the drops are proven to have become fewer by the end."""
        groups = self._groups(replicate)
        draws, ends = len(groups.draws), []
        for end in ENDS:
            alive = np.ones(draws, dtype=bool)
            for minute in looks:
                drops = groups.statistics(groups.column("drops", "soak", 0, minute, end))[:, 0]
                most = budget(ALPHA, (minute / looks[-1]) ** 3, draws)
                alive = take_out(-drops, alive, most)
            ends.append(not alive[0] and drops[0] < 0)
        return all(ends)

    def compare(self, replicate: Replicate) -> tuple[float, float, float, str]:
        """Ratio of ratios of drops with its interval, and the verdict of one look at the end."""
        look = judge_soak(replicate, guards=[SHARE_OF_WORK])
        row = look.metrics[0]
        low, high = row.interval
        return row.ratio or math.nan, low or 0.0, high or math.inf, str(look.verdict)

    def _groups(self, replicate: Replicate) -> _Groups:
        kept = [each for each in replicate.metrics if each.name in (self._metrics or [each.name])]
        return _Groups(Replicate(replicate.test, replicate.strata, tuple(kept)), self._whole)


VARIANTS = (
    Ours("edgetune, theta 1", whole=True),
    Ours("edgetune, drops alone", metrics=("drops",)),
)
"""What else was possible: all of each host's baseline taken off, and the peers' question alone."""


@dataclass(frozen=True)
class _Metric:
    """One metric in the order of the draws' hosts: cumulated rows of the soak, and the baseline."""

    before: Array
    theta: float
    counts: Array
    sums: Array
    halves: Array
    rare: bool
    elasticities: Mapping[str, Elasticity]


class _Groups:
    def __init__(self, replicate: Replicate, whole: bool) -> None:
        self.whole = whole
        strata: dict[str, Groups] = {}
        self.strata = strata
        for host, (number, test) in enumerate(zip(replicate.strata, replicate.test)):
            stratum = strata.setdefault(str(number), Groups([], []))
            (stratum.test if test else stratum.control).append(str(host))
        # Each rollout has draws of its own, as its plan has a seed of its own.
        seed = zlib.crc32(replicate.metrics[0].before.tobytes())
        self.draws: Draws = make_draws(strata, seed, draws=DRAWS)
        self.order = [int(host) for host in self.draws.hosts]
        work = [own for own in replicate.metrics if own.name == SHARE_OF_WORK.metric]
        self.packets = work[0].before[self.order] if work else None
        self.metrics = {series.name: self._metric(series) for series in replicate.metrics}

    def statistics(self, *columns: Column) -> Array:
        """Those of every draw, shape (draws, columns)."""
        return self.draws.statistics(np.stack([column.changes for column in columns], axis=1))

    @property
    def is_clear(self) -> bool:
        """Whether the baseline shows that a fifth fewer drops would be seen."""
        changes = filled(self.metrics["drops"].halves, self.draws.strata)
        statistics = self.draws.statistics(changes[:, None])[:, 0]
        return -math.expm1(-detectable(self.draws, statistics, ALPHA)) <= CLEAR

    def columns(self, looks: Sequence[int], number: int, end: int) -> list[Column]:
        """All metrics in the soak so far, its last quarter, and since the last look, less what load
        explains at one end."""
        until = looks[number - 1]
        starts = {"soak": 0, "quarter": max(0, until - looks[-1] // 4)}
        starts["last"] = looks[number - 2] if number > 1 else 0
        windows = {start: name for name, start in reversed(list(starts.items()))}
        return [
            self.column(metric, window, start, until, end)
            for start, window in windows.items()
            for metric in self.metrics
        ]

    def column(self, name: str, window: str, start: int, until: int, end: int) -> Column:
        metric = self.metrics[name]
        changes = self._changes(metric, start, until, metric.theta)
        margin = math.log1p(MARGINS.get(name, 0.0))
        if name == SHARE_OF_WORK.metric:
            changes, margin = -changes, work_margin(margin, until - start, SOAK)
        elif SHARE_OF_WORK.metric in self.metrics:
            work = self.metrics[SHARE_OF_WORK.metric]
            load = self._changes(work, start, until, metric.theta)
            known = metric.elasticities
            changes = changes - explained(known, self.strata, self.draws.hosts, load)[end]
        return Column(name, window, changes, margin)

    def _changes(self, metric: _Metric, start: int, until: int, theta: float) -> Array:
        counts = metric.counts[:, until] - metric.counts[:, start]
        sums = metric.sums[:, until] - metric.sums[:, start]
        after = log_rates(sums, counts, self.draws.strata, rare=metric.rare)
        return filled(change(metric.before, after, theta), self.draws.strata)

    def _metric(self, series: Series) -> _Metric:
        before, exposed = series.before[self.order], series.before_exposure[self.order]
        after, exposure = series.after[self.order], series.after_exposure[self.order]
        strata, unit = self.draws.strata, smallest_unit(before)
        means = expected(before / unit, exposed, strata)
        spread = dispersion(before / unit, means)
        middle = before.shape[1] // 2
        rare = bool(np.nansum(before / unit, axis=1).mean() < RARE)
        parts = (slice(None), slice(None, middle), slice(middle, None))
        whole, first, second = (
            self._rates(before[:, part] / unit, means[:, part], spread, rare) for part in parts
        )
        theta = 1.0 if self.whole else lasting(whole, first, second, strata)
        expect = expected(after / unit, exposure, strata)
        weight = weights(expect, spread)
        rows = [weight * np.nan_to_num(each) for each in (after / unit, expect)]
        sums = np.stack([_cumulated(row) for row in rows], axis=-1)
        counted = _cumulated(np.nan_to_num(after) / unit)
        slopes = self._elasticities(series, means, spread)
        return _Metric(whole, theta, counted, sums, second - first, rare, slopes)

    def _rates(self, counts: Array, means: Array, spread: float, rare: bool) -> Array:
        sums = observed_and_expected(counts, means, weights(means, spread))
        return log_rates(sums, np.nansum(counts, axis=1), self.draws.strata, rare=rare)

    def _elasticities(
        self, series: Series, means: Array, spread: float
    ) -> Mapping[str, Elasticity]:
        if self.packets is None or series.name == SHARE_OF_WORK.metric:
            return {}
        before = Counted(series.before[self.order], series.before_exposure[self.order])
        names = dict(enumerate(self.strata))
        weight = weights(means, spread)
        return elasticities(before, self.packets, weight, self.draws.strata, names)


def _cumulated(rows: Array) -> Array:
    return np.pad(np.cumsum(rows, axis=1), ((0, 0), (1, 0)))
