# SPDX-License-Identifier: Apache-2.0
"""What hosts would have counted if the tuning had done nothing, by what it is supposed to do.

A hypothesis says that the tuning multiplies the events of test hosts by a ratio. Once that is
divided out of their counts, before anything is standardised, hosts are exchangeable again if the
hypothesis is true: a permutation test of it is as exact as that of no effect, and the ratio at
which both groups look alike is the estimate (Hodges and Lehmann, Annals of Mathematical
Statistics 34, 1963; Rosenbaum, Observational Studies, 2002, section 2.4). To compare rates as they
were counted would not do: the weights of slots shrink bursts, those of the larger group more.

The sums of a block are kept under a few hypotheses; what lies between is interpolated.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any

RATIOS = (1 / 16, 1 / 4, 1 / 2, 1.0, 3.0, 16.0)
"""Closer to each other where less than 1 is supposed: the weights follow the ratio there."""
LOGS = np.log(RATIOS)
NO_EFFECT = RATIOS.index(1.0)


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
