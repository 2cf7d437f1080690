# SPDX-License-Identifier: Apache-2.0
"""The t-test over hosts, group sequential: one alpha, spent over the looks.

K. K. G. Lan, D. L. DeMets, *Discrete sequential boundaries for clinical trials*, Biometrika 70,
1983; the power family: K. Kim, D. L. DeMets, Biometrika 74, 1987. Spotify's Confidence spends so,
with the power 2 (github.com/spotify/confidence, `sequential_bound_solver`, `z_test_computer`), on
z-tests; with 8 hosts a z-test would promise too much, so each look's level is held against the p of
a t-test (C. Jennison, B. W. Turnbull, *Group Sequential Methods*, 2000, section 4.4).

The boundary takes what comes between two looks as independent of what came before. Hosts that
stay different are not, so the looks hang together more than it says, and less alpha is used.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Callable

import numpy as np

from bench.judge.peers._hosts import before_and_after, difference
from bench.judge.scenarios import Array, Replicate

ALPHA = 0.05
NODES = 120
"""Of the quadrature (Gauss-Legendre) over the paths that are still inside."""
REACH = 8.0
"""Standard deviations below 0 from which on there are none."""
HALVINGS = 50

Spending = Callable[[float], float]
"""The share of alpha that may be spent once this share of the soak has passed."""


def power_family(exponent: float) -> Spending:
    """1 spends evenly; the larger, the later."""
    return lambda passed: passed**exponent


def obrien_fleming(passed: float) -> float:
    """Next to nothing at first, nearly all at the end."""
    last = NormalDist().inv_cdf(1 - ALPHA / 2)
    return 2 * upper_tail(last / math.sqrt(passed)) / ALPHA


@dataclass(frozen=True)
class LanDeMets:
    """One-sided, on log rates of hosts, within their strata."""

    name: str
    spending: Spending
    covariate: bool = False
    """Take the baseline as a covariate (CUPED), not as what is subtracted."""

    def decide(self, replicate: Replicate, looks: Sequence[int]) -> int | None:
        """The look (minute) at which the p-value of test hosts is below the look's level."""
        times = tuple(look / looks[-1] for look in looks)
        for look, level in zip(looks, levels(times, self.spending)):
            before, after = before_and_after(replicate.metrics[0], look)
            values = after if self.covariate else after - before
            covariates = [before] if self.covariate else []
            found = difference(values, replicate.test, replicate.strata, covariates)
            if found and found.p_value() < level:
                return look
        return None


@functools.cache
def levels(times: tuple[float, ...], spending: Spending, alpha: float = ALPHA) -> Sequence[float]:
    """The one-sided level of each look, at these shares of the soak.

    The sum of what was seen is a Brownian motion. Of the paths that crossed no boundary yet, the
    next boundary takes as many as alpha then allows (Armitage, McPherson and Rowe, 1969).
    """
    points, masses = np.zeros(1), np.ones(1)
    found, spent, before = [], 0.0, 0.0
    for time in times:
        step = math.sqrt(time - before)
        bound = _bound(points, masses, step, alpha * spending(time) - spent)
        found.append(upper_tail(bound / math.sqrt(time)))
        inside, widths = _nodes(-REACH * math.sqrt(time), bound)
        steps = (inside[:, None] - points) / step
        masses = widths * (np.exp(-(steps**2) / 2) / math.sqrt(2 * math.pi) / step @ masses)
        points, spent, before = inside, alpha * spending(time), time
    return found


def upper_tail(z: float) -> float:
    """How likely a normal value is above `z`."""
    return math.erfc(z / math.sqrt(2)) / 2


def _bound(points: Array, masses: Array, step: float, share: float) -> float:
    """What a step from the points crosses upwards with a probability of `share`."""
    low, high = float(points.min()) - REACH, float(points.max()) + REACH
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        tails = [upper_tail((middle - point) / step) for point in points]
        low, high = (middle, high) if float(masses @ tails) > share else (low, middle)
    return high


def _nodes(low: float, high: float) -> tuple[Array, Array]:
    """Where, and with which weights, to sum from low to high."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = (high - low) / 2
    return low + half * (nodes + 1), half * weights
