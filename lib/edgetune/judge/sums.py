# SPDX-License-Identifier: Apache-2.0
"""The weighted sums of a window under each hypothesis (see ``hypotheses``).

They are what ``standardise`` makes of counts that a hypothesis evens. In a stratum these are a
multiple of what its test hosts counted, and one of what its control hosts did. Both are added up
once: the rates of a hypothesis need no other pass over all hosts and slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgetune.dataclass import dataclass
from edgetune.judge.hypotheses import RATIOS, evened, own_share
from edgetune.judge.standardise import LAST_DIGITS

Array = Any

_HOSTS_AT_ONCE = 256
"""Arrays of more than these do not stay in a processor's cache."""


def sums_under(counts: Array, exposure: Array, test: Array, strata: Array, spread: float) -> Array:
    """Each host's observed and expected counts under each of ``RATIOS``, (hosts, 2, ratios).

    ``counts`` and ``exposure`` have the shape (hosts, slots) and are NaN where unknown. ``test``
    and ``strata`` tell the hosts' groups; ``spread`` is the dispersion by which slots weigh.
    """
    known = np.isfinite(counts) & np.isfinite(exposure)
    counted, exposed = np.where(known, counts, 0.0), np.where(known, exposure, 0.0)
    numbers, stratum = np.unique(strata, return_inverse=True)
    members = strata == numbers[:, None]
    total = members.astype(float) @ exposed
    of_groups = [(members & group).astype(float) @ counted for group in (test, ~test)]
    fleets = [_Fleet(ratio, total, *of_groups) for ratio in RATIOS]
    found = np.empty((len(counts), 2, len(RATIOS)))
    for row in range(0, len(counts), _HOSTS_AT_ONCE):
        part = slice(row, row + _HOSTS_AT_ONCE)
        hosts = _Hosts(counted[part], exposed[part], test[part], stratum[part])
        for number, fleet in enumerate(fleets):
            found[part, :, number] = hosts.sums(fleet, spread)
    return found


class _Fleet:
    """What strata counted and were exposed to under a hypothesis, each (strata, slots)."""

    def __init__(self, ratio: float, total: Array, of_test: Array, of_control: Array) -> None:
        self.ratio, self.total = ratio, total
        test, control = evened(np.array([True, False]), ratio)
        self.counted = test * of_test + control * of_control
        self.rate = np.divide(self.counted, total, out=np.zeros_like(total), where=total > 0)


@dataclass(frozen=True)
class _Hosts:
    """Some of the hosts; counts and exposure are 0 where either is unknown."""

    counts: Array
    exposure: Array
    test: Array
    stratum: Array

    def sums(self, fleet: _Fleet, spread: float) -> Array:
        """Those under one hypothesis, shape (hosts, 2)."""
        means = self.exposure * fleet.rate[self.stratum]
        others = means if own_share(fleet.ratio) == 1 else self._held_against(fleet)
        weight = 1 / (1 + spread * others)
        each = (self.counts, means)
        return np.stack([np.einsum("ij,ij->i", weight, values) for values in each], axis=1)

    def _held_against(self, fleet: _Fleet) -> Array:
        """What is expected where a host's own counts and exposure have their ``own_share``."""
        less = 1 - own_share(fleet.ratio)
        own = less * evened(self.test, fleet.ratio)[:, None]
        counts = fleet.counted[self.stratum] - own * self.counts
        total = fleet.total[self.stratum] - less * self.exposure
        # What is left of an only host's exposure are last digits.
        some = total > LAST_DIGITS * self.exposure
        rate = np.divide(counts, total, out=np.zeros_like(total), where=some)
        return self.exposure * np.maximum(rate, 0.0)
