# SPDX-License-Identifier: Apache-2.0
"""How each host changed: ``log(rate after) - theta * log(rate before)``.

``theta`` 1 is the difference in differences. A smaller one takes off only as much of a host's
baseline as will last (CUPED: Deng, Xu, Kohavi, Walker, WSDM 2013). Fitted to baseline and soak, as
there, it also takes off a part of the effect where hosts are few; so it is fitted to the two
halves of the baseline alone. ``python -m bench.judge`` compares both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any

DIFFERENCE_IN_DIFFERENCES = 1.0


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
    return sum(float(((own - own.mean()) ** 2).sum()) for own in groups if own.size)


def filled(values: Array, strata: Array) -> Array:
    """Unknown changes as the mean of their stratum: they speak for neither group.

    What is unknown in a whole stratum is 0.
    """
    found = values.copy()
    for stratum in numbers_of(strata):
        own = strata == stratum
        known = own & np.isfinite(values)
        found[own & ~known] = values[known].mean() if known.any() else 0.0
    return found
