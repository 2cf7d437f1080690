# SPDX-License-Identifier: Apache-2.0
"""How far one sample is above another (Mann and Whitney), as kayenta-mannwhitney computes it.

The interval ends where the standardised rank sum crosses a normal quantile. The zero finder is
Brent's (Algorithms for Minimization without Derivatives, 1973, chapter 4) in the form of R's
`uniroot`, which Kayenta follows step by step: it stops at an absolute distance, so what it finds
depends on the path.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from statistics import NormalDist
from typing import Callable

import numpy as np

from bench.judge.scenarios import Array

STOP = 1e-4
"""Where the zero finder stops: absolute, so nothing smaller than this is seen."""
STEPS = 1001
"""After so many it takes what it has."""


class TiedError(Exception):
    """All observations are tied, so the statistic has no variance."""


@dataclass(frozen=True)
class Shift:
    """Both ends of the interval, and the estimate, in the unit of the samples."""

    low: float
    high: float
    estimate: float


def shift(experiment: Array, control: Array, confidence: float) -> Shift:
    """How far `experiment` is above `control`; TiedError if that cannot be computed."""
    statistic = _Statistic(experiment, control)
    least = float(experiment.min() - control.max())
    most = float(experiment.max() - control.min())

    def end(quantile: float) -> float:
        if statistic(least, quantile) <= 0:
            return least
        if statistic(most, quantile) >= 0:
            return most
        return find_root(lambda mu: statistic(mu, quantile), least, most)

    z = -NormalDist().inv_cdf((1 - confidence) / 2)
    low, high = end(z), end(-z)
    return Shift(low, high, find_root(lambda mu: statistic(mu, 0.0), least, most))


class _Statistic:
    """The standardised rank sum of the experiment, moved down by mu, with continuity correction.

    Sorted values and their numbers are kept, so that one mu costs two binary searches.
    """

    def __init__(self, experiment: Array, control: Array) -> None:
        self._x, self._times_x = np.unique(experiment, return_counts=True)
        self._y, self._times_y = np.unique(control, return_counts=True)
        self._n, self._m = len(experiment), len(control)
        self._below_y = np.concatenate([[0], np.cumsum(self._times_y)])

    def __call__(self, mu: float, quantile: float) -> float:
        moved, times = self._moved(mu)
        below = np.searchsorted(self._y, moved, side="left")
        up_to = np.searchsorted(self._y, moved, side="right")
        pairs = times * (self._below_y[below] + self._below_y[up_to]) / 2
        deviation = float(pairs.sum()) - self._n * self._m / 2
        tied = up_to > below
        ties = _ties(times) + _ties(self._times_y)
        ties += _ties_of_both(times[tied], self._times_y[below[tied]])
        total = self._n + self._m
        variance = self._n * self._m / 12 * (total + 1 - ties / (total * (total - 1)))
        if variance <= 0:
            raise TiedError
        corrected = deviation - math.copysign(0.5, deviation) * (deviation != 0)
        return corrected / math.sqrt(variance) - quantile

    def _moved(self, mu: float) -> tuple[Array, Array]:
        """The values of the experiment less mu, and how often each is there: what differs by less
        than can be kept of the difference is the same then."""
        moved = self._x - mu
        if (moved[1:] > moved[:-1]).all():
            return moved, self._times_x
        first = np.flatnonzero(np.diff(moved, prepend=-math.inf))
        return moved[first], np.add.reduceat(self._times_x, first)


def _ties(times: Array) -> int:
    return int((times**3 - times).sum())


def _ties_of_both(a: Array, b: Array) -> int:
    """What values add that a times are in one sample, and b times in the other."""
    return int((3 * a * b * (a + b)).sum())


def find_root(function: Callable[[float], float], a: float, b: float) -> float:
    """Where `function` is 0 between a and b, known to `STOP` whatever the scale of the values."""
    fa, fb = function(a), function(b)
    if fa == 0 or fb == 0:
        return a if fa == 0 else b
    c, fc = a, fa
    for _ in range(STEPS):
        last = b - a
        if abs(fc) < abs(fb):
            a, b, c = b, c, b
            fa, fb, fc = fb, fc, fb
        tolerance = 2 * sys.float_info.epsilon * abs(b) + STOP / 2
        if abs(c - b) / 2 <= tolerance or fb == 0:
            return b
        step = _next_step((a, fa), (b, fb), (c, fc), last, tolerance)
        a, fa = b, fb
        b += step
        fb = function(b)
        if fb * fc > 0:
            c, fc = a, fa
    return b


def _next_step(
    a: tuple[float, float],
    b: tuple[float, float],
    c: tuple[float, float],
    last: float,
    tolerance: float,
) -> float:
    """The step from b: interpolated if that is small enough, else half of what is left."""
    step = (c[0] - b[0]) / 2
    if abs(last) >= tolerance and abs(a[1]) > abs(b[1]):
        p, q = _interpolated(a, b, c)
        if p < min(1.5 * step * q - abs(tolerance * q) / 2, abs(last * q / 2)):
            step = p / q
    if abs(step) < tolerance:
        return tolerance if step > 0 else -tolerance
    return step


def _interpolated(
    a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]
) -> tuple[float, float]:
    """Numerator, not negative, and denominator of the step."""
    s = b[1] / a[1]
    if a[0] == c[0]:
        p, q = (c[0] - b[0]) * s, 1 - s
    else:
        q, r = a[1] / c[1], b[1] / c[1]
        p = s * ((c[0] - b[0]) * q * (q - r) - (b[0] - a[0]) * (r - 1))
        q = (q - 1) * (r - 1) * (s - 1)
    return abs(p), -q if p > 0 else q
