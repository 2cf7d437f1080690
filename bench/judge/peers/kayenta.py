# SPDX-License-Identifier: Apache-2.0
"""Kayenta's judge (NetflixACAJudge), written afresh from a description of what it does.

One metric, not critical, of which only an increase is a failure; missing values are removed and
outliers kept, as by default. Everything else that is set here is hard-coded there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable

import numpy as np

from bench.judge.peers._groups import drop_ratios_of_groups, drops_of_groups
from bench.judge.scenarios import Array, Replicate

Z = 2.3263478740408408
"""The normal quantile of a two-sided 98 % interval."""
TOLERANCE = 0.25
"""How much of the estimated shift the interval must exclude."""
STOP = 1e-4
"""Where the root finder stops: absolute, so nothing smaller than this is seen."""
MARGINAL = 75.0
"""The usual score up to which a look ends the analysis."""


@dataclass(frozen=True)
class Kayenta:
    """One configuration of the judge, asked at each look until it fails the canary."""

    name: str
    allowed_increase: float = 1.0
    """Ratio of the means up to which an increase passes."""
    lookback: int | None = None
    """Minutes that are judged at a look; all since the soak began if not given."""
    least_points: int = 0
    """Looks with fewer minutes are left out."""
    ratios: bool = False
    """Judge drops per packet, not drops."""

    def decide(self, replicate: Replicate, looks: Sequence[int]) -> int | None:
        """The look (minute) that ends the analysis."""
        test, control = (drop_ratios_of_groups if self.ratios else drops_of_groups)(replicate)
        for look in looks:
            seen = slice(max(0, look - self.lookback) if self.lookback else 0, look)
            if look >= self.least_points:
                label = classify(test[seen], control[seen], self.allowed_increase)
                if score([label]) <= MARGINAL:
                    return look
        return None


def score(labels: Sequence[str]) -> float:
    """0 to 100 for metrics of one group and of equal weight; an Error counts for nothing."""
    count = Counter(labels)
    if 2 * count["Nodata"] >= len(labels):
        return 0.0
    counted = count["Pass"] + count["High"]
    return round(100 * count["Pass"] / counted, 2) if counted else 100.0


def classify(experiment: Array, control: Array, allowed_increase: float = 1.0) -> str:
    """Pass, High, Nodata or Error."""
    experiment, control = experiment[~np.isnan(experiment)], control[~np.isnan(control)]
    if not len(experiment) or not len(control):
        return "Nodata"
    if _same(experiment, control):
        return "Pass"
    if np.ptp(experiment) == 0 and np.ptp(control) == 0:
        experiment, control = _jittered(experiment), _jittered(control)
    try:
        low, estimate = shift(experiment, control)
    except TiedError:
        return "Error"
    effect = _mean_ratio(experiment, control)
    high = low > TOLERANCE * abs(estimate) and (math.isnan(effect) or effect >= allowed_increase)
    return "High" if high else "Pass"


class TiedError(Exception):
    """All observations are tied, so the statistic has no variance."""


def shift(experiment: Array, control: Array) -> tuple[float, float]:
    """Lower end of the 98 % interval, and estimate, of how far `experiment` is above `control`
    (Mann and Whitney); TiedError if there is neither."""
    statistic = _Statistic(experiment, control)
    least = experiment.min() - control.max()
    most = experiment.max() - control.min()
    if statistic(least, Z) <= 0:
        low = least
    elif statistic(most, Z) >= 0:
        low = most
    else:
        low = find_root(lambda mu: statistic(mu, Z), least, most)
    return low, find_root(lambda mu: statistic(mu, 0.0), least, most)


class _Statistic:
    """The standardised rank sum of the experiment, moved down by mu, with continuity correction.

    Sorted values and their numbers are kept, so that one mu costs two binary searches.
    """

    def __init__(self, experiment: Array, control: Array) -> None:
        self._x, self._times_x = np.unique(experiment, return_counts=True)
        self._y, self._times_y = np.unique(control, return_counts=True)
        self._n, self._m = len(experiment), len(control)
        self._below_y = np.concatenate([[0], np.cumsum(self._times_y)])
        self._ties = sum(int((t**3 - t).sum()) for t in (self._times_x, self._times_y))

    def __call__(self, mu: float, quantile: float) -> float:
        moved = self._x - mu
        below = np.searchsorted(self._y, moved, side="left")
        up_to = np.searchsorted(self._y, moved, side="right")
        pairs = self._times_x * (self._below_y[below] + self._below_y[up_to]) / 2
        deviation = float(pairs.sum()) - self._n * self._m / 2
        spread = math.sqrt(max(self._variance(below, up_to), 0.0))
        if spread == 0:
            raise TiedError
        return (deviation - math.copysign(0.5, deviation) * (deviation != 0)) / spread - quantile

    def _variance(self, below: Array, up_to: Array) -> float:
        tied = up_to > below
        a, b = self._times_x[tied], self._times_y[below[tied]]
        ties = self._ties + int((3 * a * b * (a + b)).sum())
        total = self._n + self._m
        return self._n * self._m / 12 * (total + 1 - ties / (total * (total - 1)))


def find_root(function: Callable[[float], float], a: float, b: float) -> float:
    """Brent's zero finder (Algorithms for Minimization without Derivatives, 1973, chapter 4): it
    stops when the zero is known to `STOP`, whatever the scale of the values."""
    fa, fb = function(a), function(b)
    c, fc, step, before = a, fa, b - a, b - a
    while True:
        if (fb > 0) == (fc > 0):
            c, fc, step, before = a, fa, b - a, b - a
        if abs(fc) < abs(fb):
            a, b, c = b, c, b
            fa, fb, fc = fb, fc, fb
        tolerance = 2 * np.finfo(float).eps * abs(b) + STOP / 2
        half = (c - b) / 2
        if abs(half) <= tolerance or fb == 0:
            return b
        step, before = _next_step((a, fa), (b, fb), (c, fc), step, before, tolerance)
        a, fa = b, fb
        b += step if abs(step) > tolerance else math.copysign(tolerance, half)
        fb = function(b)


def _next_step(
    a: tuple[float, float],
    b: tuple[float, float],
    c: tuple[float, float],
    step: float,
    before: float,
    tolerance: float,
) -> tuple[float, float]:
    """The step from b and the one it replaces: interpolated if that is small enough, else half."""
    half = (c[0] - b[0]) / 2
    if abs(before) < tolerance or abs(a[1]) <= abs(b[1]):
        return half, half
    s = b[1] / a[1]
    if a[0] == c[0]:
        p, q = 2 * half * s, 1 - s
    else:
        q, r = a[1] / c[1], b[1] / c[1]
        p = s * (2 * half * q * (q - r) - (b[0] - a[0]) * (r - 1))
        q = (q - 1) * (r - 1) * (s - 1)
    if p > 0:
        q = -q
    p = abs(p)
    if 2 * p < min(3 * half * q - abs(tolerance * q), abs(before * q)):
        return p / q, step
    return half, half


def _same(experiment: Array, control: Array) -> bool:
    """The same values as often, or one value only."""
    everything = np.concatenate([experiment, control])
    return np.array_equal(np.sort(experiment), np.sort(control)) or np.ptp(everything) == 0


def _jittered(values: Array) -> Array:
    """A constant with noise of 1e-5 of it; always the same noise, so that a run can be repeated."""
    return values * (1 + 1e-5 * np.random.default_rng(0).standard_normal(len(values)))


def _mean_ratio(experiment: Array, control: Array) -> float:
    """NaN if either mean is 0, which no allowed increase then holds back."""
    means = float(experiment.mean()), float(control.mean())
    return math.nan if 0 in means else means[0] / means[1]
