# SPDX-License-Identifier: Apache-2.0
"""GrowthBook's sequential test, with hosts as the units.

A one-sided asymptotic confidence sequence (I. Waudby-Smith and others, arXiv 2103.06476, equation
134) around the difference of two means; each value is adjusted by the baseline (CUPED), and errors
are Welch's. Source: github.com/growthbook/growthbook, `packages/stats/gbstats/frequentist/tests.py`
(SequentialOneSidedTreatmentGreaterTTest) and `models/statistics.py`.

The sequence is one of units that arrive, and is the tightest once as many of them are there as the
tuning parameter says. Hosts do not arrive: all are there from the first look on, and what grows is
what is known of each. GrowthBook's difference is relative; here it is one of log rates, which is
the logarithm of that. A host's stratum is taken off as its mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.judge.peers._hosts import before_and_after
from bench.judge.scenarios import Array, Replicate

ALPHA = 0.05
TUNING = 5000
"""The tuning parameter, by default: units at which one tends to decide."""


@dataclass(frozen=True)
class GrowthBook:
    """Rolls back when the whole sequence is above 0."""

    name: str
    tuning: int | None = TUNING
    """Units; as many as there are hosts if not given, which is what GrowthBook advises."""

    def decide(self, replicate: Replicate, looks: Sequence[int]) -> int | None:
        """The look (minute) at which it is."""
        for look in looks:
            before, after = before_and_after(replicate.metrics[0], look)
            there = ~np.isnan(before + after)
            strata, test = replicate.strata[there], replicate.test[there]
            before, after = (_centred(values[there], strata) for values in (before, after))
            adjusted = after - theta(before, after) * before
            if lower_end(adjusted[test], adjusted[~test], self.tuning) > 0:
                return look
        return None


def lower_end(test: Array, control: Array, tuning: int | None = None) -> float:
    """The lower end of the sequence around the difference of the means; minus infinity where there
    are too few values, or all of a group are the same."""
    if min(len(test), len(control)) < 2 or np.ptp(test) == 0 or np.ptp(control) == 0:
        return -math.inf
    error = math.sqrt(test.var(ddof=1) / len(test) + control.var(ddof=1) / len(control))
    count = len(test) + len(control)
    return float(test.mean() - control.mean()) - error * width(count, tuning or count)


def width(count: int, tuning: int) -> float:
    """Standard errors from the difference to the end of the sequence, with `count` units."""
    two_log = -2 * math.log(2 * ALPHA)
    growth = count * (two_log + math.log(two_log + 1)) / tuning
    scaled = growth + 1
    return math.sqrt(2 * scaled / growth * math.log(1 + math.sqrt(scaled) / (2 * ALPHA)))


def theta(before: Array, after: Array) -> float:
    """How much of the baseline is taken off: the slope over all units, whatever their group."""
    if not len(before):
        return 0.0
    spread = float(((before - before.mean()) ** 2).sum())
    shared = float(((before - before.mean()) * (after - after.mean())).sum())
    return shared / spread if spread else 0.0


def _centred(values: Array, strata: Array) -> Array:
    """Values less the mean of their stratum."""
    centred = values.copy()
    for stratum in np.unique(strata):
        centred[strata == stratum] -= values[strata == stratum].mean()
    return centred
