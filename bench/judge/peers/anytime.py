# SPDX-License-Identifier: Apache-2.0
"""Anytime-valid methods: any number of looks, no horizon.

Both take minutes, or even drops, as independent of each other. On hosts they are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.judge.peers._groups import totals
from bench.judge.scenarios import SOAK, Array, Replicate

ALPHA = 0.05
TIGHTEST = SOAK / 2
"""Minutes after which the confidence sequence is to be the tightest."""
CONCENTRATION = 100.0
"""Of the Dirichlet prior, as in seqabpy."""


@dataclass(frozen=True)
class AsymptoticSequence:
    """One-sided asymptotic confidence sequence (Waudby-Smith and others, arXiv 2103.06476) on the
    log ratio of the groups' rates in each minute, less its mean in the baseline."""

    name: str
    estimated: bool = False
    """Widen it for the error of the baseline's mean, which the method takes as known."""

    def decide(self, replicate: Replicate, looks: Sequence[int]) -> int | None:
        """The look (minute) at which the sequence excludes that drops are as they were."""
        drops = replicate.metrics[0]
        before = log_ratios(drops.before, drops.before_exposure, replicate.test)
        after = log_ratios(drops.after, drops.after_exposure, replicate.test)
        known = before[~np.isnan(before)]
        if not len(known):
            return None
        for look in looks:
            seen = after[:look][~np.isnan(after[:look])] - known.mean()
            if len(seen) < 2:
                continue
            wider = math.sqrt(1 + len(seen) / len(known)) if self.estimated else 1.0
            if seen.mean() > wider * margin(len(seen), float(seen.std(ddof=1))):
                return look
        return None


def margin(count: int, deviation: float) -> float:
    """Half the width of the sequence after `count` values."""
    two_log = -2 * math.log(2 * ALPHA)
    r2 = (two_log + math.log(two_log + 1)) / TIGHTEST
    scaled = count * r2 + 1
    return deviation * math.sqrt(
        2 * scaled / (count**2 * r2) * math.log(1 + math.sqrt(scaled) / (2 * ALPHA))
    )


def log_ratios(events: Array, exposure: Array, test: Array) -> Array:
    """log(rate of the test group / rate of the control group) per bin; NaN where one is missing."""
    rates = [(totals(events, hosts) + 0.5) / totals(exposure, hosts) for hosts in (test, ~test)]
    ratios: Array = np.log(rates[0] / rates[1])
    return ratios


@dataclass(frozen=True)
class LindonMalek:
    """Sequential multinomial test of counts (Lindon and Malek, NeurIPS 2022): of all drops since
    the soak began, has the test group more than its share in the baseline?"""

    name: str

    def decide(self, replicate: Replicate, looks: Sequence[int]) -> int | None:
        """The look (minute) at which it has."""
        drops = replicate.metrics[0]
        share = _shares(drops.before, replicate.test)
        if not 0 < share[0] < 1:
            return None
        for look in looks:
            counts = _counts(drops.after[:, :look], replicate.test)
            more = counts[0] > share[0] * sum(counts)
            if more and log_bayes_factor(counts, share) > -math.log(ALPHA):
                return look
        return None


def log_bayes_factor(counts: Sequence[float], shares: Sequence[float]) -> float:
    """Of any other shares against these, with a Dirichlet prior around them."""
    prior = [CONCENTRATION * share for share in shares]
    posterior = [a + n for a, n in zip(prior, counts)]
    expected = sum(n * math.log(share) for n, share in zip(counts, shares))
    return _log_beta(posterior) - _log_beta(prior) - expected


def _log_beta(values: Sequence[float]) -> float:
    return sum(map(math.lgamma, values)) - math.lgamma(sum(values))


def _counts(events: Array, test: Array) -> tuple[float, float]:
    return float(np.nansum(events[test])), float(np.nansum(events[~test]))


def _shares(events: Array, test: Array) -> tuple[float, float]:
    counts = _counts(events, test)
    share = counts[0] / sum(counts) if sum(counts) else 0.0
    return share, 1 - share
