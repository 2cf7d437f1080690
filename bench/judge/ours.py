# SPDX-License-Identifier: Apache-2.0
"""edgetune's own judge, on the arrays of a simulated rollout.

The same functions that a look calls, with fewer draws (a test is as valid with them, and a
little weaker) and without the documents of the record around them.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.judge.production import judge_soak
from bench.judge.scenarios import SOAK, Replicate, Series
from edgetune.base.documents.plan import Groups
from edgetune.intent.plan import SHARE_OF_WORK
from edgetune.judge.comparison import Column, harm, work_margin
from edgetune.judge.permutation import Draws, budget, make_draws, spent, take_out
from edgetune.judge.standardise import (
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
        alive = np.ones(len(groups.draws), dtype=bool)
        for number, minute in enumerate(looks, start=1):
            columns = groups.columns(looks, number)
            scores = harm(groups.statistics(*columns), columns).max(axis=1)
            share = spent(ALPHA, minute / looks[-1], len(scores), len(looks))
            alive = take_out(scores, alive, budget(ALPHA, share, len(scores)))
            if not alive[0]:
                return minute
        return None

    def improved(self, replicate: Replicate, looks: Sequence[int]) -> bool:
        """Whether the drops are proven to have become fewer by the end."""
        groups = self._groups(replicate)
        alive = np.ones(len(groups.draws), dtype=bool)
        for minute in looks:
            drops = groups.statistics(groups.column("drops", "soak", 0, minute))[:, 0]
            most = budget(ALPHA, (minute / looks[-1]) ** 3, len(drops))
            alive = take_out(-drops, alive, most)
        return bool(not alive[0] and drops[0] < 0)

    def compare(self, replicate: Replicate) -> tuple[float, float, float, str]:
        """Ratio of ratios of drops with its interval, and the verdict of one look at the end."""
        look = judge_soak(replicate)
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


class _Groups:
    def __init__(self, replicate: Replicate, whole: bool) -> None:
        self.whole = whole
        strata: dict[str, Groups] = {}
        for host, (number, test) in enumerate(zip(replicate.strata, replicate.test)):
            stratum = strata.setdefault(str(number), Groups([], []))
            (stratum.test if test else stratum.control).append(str(host))
        # Each rollout has draws of its own, as its plan has a seed of its own.
        seed = zlib.crc32(replicate.metrics[0].before.tobytes())
        self.draws: Draws = make_draws(strata, seed, draws=DRAWS)
        self.order = [int(host) for host in self.draws.hosts]
        self.metrics = {series.name: self._metric(series) for series in replicate.metrics}

    def statistics(self, *columns: Column) -> Array:
        """Those of every draw, shape (draws, columns)."""
        return self.draws.statistics(np.stack([column.changes for column in columns], axis=1))

    def columns(self, looks: Sequence[int], number: int) -> list[Column]:
        """All metrics in the soak so far, its last quarter, and since the last look."""
        until = looks[number - 1]
        starts = {"soak": 0, "quarter": max(0, until - looks[-1] // 4)}
        starts["last"] = looks[number - 2] if number > 1 else 0
        windows = {start: name for name, start in reversed(list(starts.items()))}
        return [
            self.column(metric, window, start, until)
            for start, window in windows.items()
            for metric in self.metrics
        ]

    def column(self, name: str, window: str, start: int, until: int) -> Column:
        metric, strata = self.metrics[name], self.draws.strata
        counts = metric.counts[:, until] - metric.counts[:, start]
        after = log_rates(metric.sums[:, until] - metric.sums[:, start], counts, strata)
        changes = filled(change(metric.before, after, metric.theta), strata)
        margin = math.log1p(MARGINS.get(name, 0.0))
        if name == SHARE_OF_WORK.metric:
            changes, margin = -changes, work_margin(margin, until - start, SOAK)
        return Column(name, window, changes, margin)

    def _metric(self, series: Series) -> _Metric:
        before, exposed = series.before[self.order], series.before_exposure[self.order]
        after, exposure = series.after[self.order], series.after_exposure[self.order]
        strata, unit = self.draws.strata, smallest_unit(before)
        means = expected(before / unit, exposed, strata)
        spread = dispersion(before / unit, means)
        middle = before.shape[1] // 2
        parts = (slice(None), slice(None, middle), slice(middle, None))
        whole, first, second = (
            self._rates(before[:, part] / unit, means[:, part], spread) for part in parts
        )
        theta = 1.0 if self.whole else lasting(whole, first, second, strata)
        expect = expected(after / unit, exposure, strata)
        weight = weights(expect, spread)
        rows = [weight * np.nan_to_num(each) for each in (after / unit, expect)]
        sums = np.stack([_cumulated(row) for row in rows], axis=-1)
        return _Metric(whole, theta, _cumulated(np.nan_to_num(after) / unit), sums)

    def _rates(self, counts: Array, means: Array, spread: float) -> Array:
        sums = observed_and_expected(counts, means, weights(means, spread))
        return log_rates(sums, np.nansum(counts, axis=1), self.draws.strata)


def _cumulated(rows: Array) -> Array:
    return np.pad(np.cumsum(rows, axis=1), ((0, 0), (1, 0)))
