# SPDX-License-Identifier: Apache-2.0
"""What a host counted against what was to be expected of it at that time, and how it changed.

What is expected in a slot is the host's exposure (packets, seconds) times the rate of its
stratum in that very slot: a surge of the whole PoP is in both and cancels, and its few slots do
not outweigh the quiet ones. Slots are weighted as counts with that mean and a variance of
``mean + dispersion * mean ** 2`` deserve (the quasi-score of the negative binomial): plain sums
for rare events, the mean of the ratios for bursty ones. Both are functions of all hosts alike,
whichever group they are in, so permutation tests on them stay valid where no group differs.

Where one does, a hypothesis says that the tuning multiplies the events of test hosts by a ratio.
Once that is divided out of their counts, before anything is standardised, hosts are exchangeable
again if the hypothesis is true: a permutation test of it is as exact as that of no effect, and the
ratio at which both groups look alike is the estimate (Hodges and Lehmann, Annals of Mathematical
Statistics 34, 1963; Rosenbaum, Observational Studies, 2002, section 2.4). To compare rates as they
were counted would not do: the weights of slots shrink bursts, those of the larger group more. The
sums of a block are kept under a few hypotheses; what lies between is interpolated.

A change is ``log(rate after) - theta * log(rate before)``. ``theta`` 1 is the difference in
differences. A smaller one takes off only as much of a host's baseline as will last (CUPED: Deng,
Xu, Kohavi, Walker, WSDM 2013). Fitted to baseline and soak, as there, it also takes off a part of
the effect where hosts are few; so it is fitted to the two halves of the baseline alone.
``python -m bench.judge`` compares both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any

RARE = 20.0
"""Events of a host in the baseline below which they are compared by their number."""
ADDED = 100.0

LAST_DIGITS = 1e-9
"""Sums differ by this share of them for no other reason than their order."""
_LEAST = 1e-3

RATIOS = (1 / 16, 1 / 4, 1 / 2, 1.0, 3.0, 16.0)
"""Closer to each other where less than 1 is supposed: the weights follow the ratio there."""
LOGS = np.log(RATIOS)
NO_EFFECT = RATIOS.index(1.0)
DIFFERENCE_IN_DIFFERENCES = 1.0


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
    ratio = np.divide(counted.sum(1, keepdims=True), total, np.zeros_like(total), where=total > 0)
    fitted = ratio * mean
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


def log_rates(
    sums: Array, counts: Array, strata: Array, scale: Array | float = 1.0, rare: bool = False
) -> Array:
    """``log((observed + half an event) / expected)`` of each host.

    ``sums`` as ``observed_and_expected`` gives them, ``counts`` the plain number of units. Both
    are multiplied by each host's ``scale`` before anything is added, and the logarithm of that is
    taken off in the end. In a stratum in which nothing happened all are 0; NaN for a host that
    had no exposure.

    Of ``rare`` events the logarithm says little. ``ADDED`` of them are added on both sides, which
    makes of it nearly the difference of counts that is best for them (the score of a Poisson
    count); what it is multiplied by in the end keeps small ratios the same. A host with many more
    than those still counts by the logarithm.
    """
    scales = np.broadcast_to(scale, len(sums))
    observed, means = sums[:, 0] * scales, sums[:, 1]
    rates = np.zeros(len(sums))
    for stratum in numbers_of(strata):
        members = strata == stratum
        if observed[members].sum() <= 0 or means[members].sum() <= 0:
            continue
        event = observed[members].sum() / (counts * scales)[members].sum()
        exposed = np.where(means[members] > 0, means[members], np.nan)
        if rare:
            usual, added = means[members][means[members] > 0].mean(), ADDED * event
            logs = np.log((observed[members] + added) / (exposed + added)) * (1 + added / usual)
        else:
            logs = np.log((observed[members] + 0.5 * event) / exposed)
        rates[members] = logs - np.log(scales[members])
    return rates


def evened(test: Array, ratio: float) -> Array:
    """What each host's counts are multiplied by to be alike under a hypothesis, shape (hosts,).

    The larger counts become smaller: multiplied, small ones would seem burstier than they are.
    """
    return np.where(test, 1 / max(ratio, 1.0), min(ratio, 1.0))


def own_share(ratio: float) -> float:
    """What a host's own events and exposure weigh in the rate that weighs its slots.

    Those of the other hosts weigh 1. Its own make a host's bursts count for less. Under a ratio
    below 1 the smaller counts of test hosts are burstier than the evened ones of control: there
    that would lower the estimate.
    """
    return min(ratio, 1.0)


def under(rates: Array, test: Array, supposed: float) -> Array:
    """The logarithm of each host's rate under a hypothesis, shape (hosts,).

    ``rates`` are those of ``rates_under``; ``supposed`` is the logarithm of a ratio.
    """
    above = int(np.clip(np.searchsorted(LOGS, supposed), 1, len(LOGS) - 1))
    low, high = LOGS[above - 1], LOGS[above]
    part = np.clip((supposed - low) / (high - low), 0.0, 1.0)
    between = (1 - part) * rates[:, above - 1] + part * rates[:, above]
    return between - supposed * test


def root(differences: Array) -> float:
    """The logarithm of the ratio at which the groups are alike.

    ``differences`` of test and control hosts are those under ``RATIOS``; beyond these they fall
    as the ratio grows.
    """
    falling = np.minimum.accumulate(differences)
    if falling[0] <= 0:
        return float(LOGS[0] + falling[0])
    if falling[-1] >= 0:
        return float(LOGS[-1] + falling[-1])
    return float(np.interp(0.0, -falling, LOGS))


def change(before: Array, after: Array, theta: float = DIFFERENCE_IN_DIFFERENCES) -> Array:
    """The change of each host, shape (hosts,); NaN where one of both is not known."""
    return after - theta * before


def lasting(before: Array, first: Array, second: Array, strata: Array) -> float:
    """The share of the variance between hosts that lasts: what theta should be.

    The logarithms of the hosts' rates in the baseline and in its two halves, between which only
    what does not last differs. Pooled within strata, between 0 and 1; 1 if hosts do not differ.
    """
    known = np.isfinite(before) & np.isfinite(first) & np.isfinite(second)
    between = _squares(before, strata, known)
    passing = _squares(first - second, strata, known) / 4
    return min(max(1 - passing / between, 0.0), 1.0) if between > 0 else 1.0


def numbers_of(strata: Array) -> Array:
    """The strata that hosts are in; ``strata`` numbers that of each from 0 on."""
    return np.flatnonzero(np.bincount(strata))


def _squares(values: Array, strata: Array, known: Array) -> float:
    groups = [values[known & (strata == stratum)] for stratum in numbers_of(strata)]
    return sum(float(((group - group.mean()) ** 2).sum()) for group in groups if group.size)


def filled(values: Array, strata: Array) -> Array:
    """Unknown changes as the mean of their stratum: they speak for neither group.

    What is unknown in a whole stratum is 0.
    """
    changes = values.copy()
    for stratum in numbers_of(strata):
        members = strata == stratum
        known = members & np.isfinite(values)
        changes[members & ~known] = values[known].mean() if known.any() else 0.0
    return changes
