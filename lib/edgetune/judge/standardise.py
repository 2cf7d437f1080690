# SPDX-License-Identifier: Apache-2.0
"""What a host counted against what was to be expected of it at that time.

What is expected in a slot is the host's exposure (packets, seconds) times the rate of its
stratum in that very slot: a surge of the whole PoP is in both and cancels, and its few slots do
not outweigh the quiet ones. Slots are weighted as counts with that mean and a variance of
``mean + dispersion * mean ** 2`` deserve (the quasi-score of the negative binomial): plain sums
for rare events, the mean of the ratios for bursty ones. Both are functions of all hosts alike,
whichever group they are in, so permutation tests on them stay valid where no group differs.
Where one does, its ratio is divided out first (see ``hypotheses``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgetune.judge.change import numbers_of

Array = Any

LAST_DIGITS = 1e-9
"""Sums differ by this share of them for no other reason than their order."""
_LEAST = 1e-3


def smallest_unit(events: Array) -> float:
    """What one event is: the smallest step between two amounts that hosts counted in a slot.

    1 for counts, 0.2 for the share of five checks; at least a thousandth of what is usual, for
    times. Half of it is added to sums, so multiplying a metric changes nothing.
    """
    amounts = np.unique(events[np.isfinite(events)])
    counted = amounts[amounts > 0]
    if not counted.size:
        return 1.0
    steps = np.diff(amounts)
    # Sums of fractions differ in their last digits.
    smallest = steps[steps > LAST_DIGITS * counted[-1]].min(initial=counted[-1])
    return float(max(smallest, _LEAST * np.median(counted)))


def expected(events: Array, exposure: Array, strata: Array) -> Array:
    """Exposure times the stratum's rate in each slot, shape (hosts, slots); NaN if unknown."""
    known = np.isfinite(events) & np.isfinite(exposure)
    numbers, stratum = np.unique(strata, return_inverse=True)
    members = (strata == numbers[:, None]).astype(float)
    happened, total = (members @ np.where(known, each, 0.0) for each in (events, exposure))
    rate = np.divide(happened, total, out=np.zeros_like(total), where=total > 0)
    return np.where(known, exposure * rate[stratum], np.nan)


def dispersion(events: Array, means: Array) -> float:
    """How much more than Poisson's the variance is, pooled over hosts that may differ.

    The moment estimate of the negative binomial's ``1 / k``; 0 when there is nothing to tell.
    """
    known = np.isfinite(means) & np.isfinite(events)
    counted, mean = np.where(known, events, 0.0), np.where(known, means, 0.0)
    total = mean.sum(1, keepdims=True)
    own = np.divide(counted.sum(1, keepdims=True), total, np.zeros_like(total), where=total > 0)
    fitted = own * mean
    squares = float((fitted**2).sum())
    if squares <= 0:
        return 0.0
    return max(0.0, float(((counted - fitted) ** 2 - fitted).sum()) / squares)


def weights(means: Array, overdispersion: float) -> Array:
    """What each slot counts for, by its expected number of events; 0 where that is unknown."""
    known = np.isfinite(means)
    return np.where(known, 1 / (1 + overdispersion * np.where(known, means, 0.0)), 0.0)


def observed_and_expected(events: Array, means: Array, weight: Array) -> Array:
    """Weighted sums over the slots, shape (hosts, 2); the sums of several windows add up."""
    known = np.isfinite(means) & np.isfinite(events)
    sums = [(weight * np.where(known, what, 0.0)).sum(1) for what in (events, means)]
    return np.stack(sums, axis=1)


def log_rates(sums: Array, counts: Array, strata: Array, scale: Array | float = 1.0) -> Array:
    """``log((observed + half an event) / expected)`` of each host.

    ``sums`` as ``observed_and_expected`` gives them, ``counts`` the plain number of units. Both
    are multiplied by each host's ``scale`` before anything is added, and the logarithm of that is
    taken off in the end. In a stratum in which nothing happened all are 0; NaN for a host that
    had no exposure.
    """
    scales = np.broadcast_to(scale, len(sums))
    observed, means = sums[:, 0] * scales, sums[:, 1]
    found = np.zeros(len(sums))
    for stratum in numbers_of(strata):
        own = strata == stratum
        if observed[own].sum() <= 0 or means[own].sum() <= 0:
            continue
        half = 0.5 * observed[own].sum() / (counts * scales)[own].sum()
        exposed = np.where(means[own] > 0, means[own], np.nan)
        found[own] = np.log((observed[own] + half) / exposed / scales[own])
    return found
