# SPDX-License-Identifier: Apache-2.0
"""Two rollouts that were published as daily drops of two groups, simulated per host.

The level of a group is that of the article; hosts differ around it, and their noise lasts. Bins
are hours. Packets and guards are as in the scenarios, and the change leaves them alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Callable

import numpy as np

from bench.judge.scenarios import Array, Replicate, Scenario, measure, split

HOSTS = 20
"""Of each group."""
DAY = 24
SPREAD, NOISE = 0.4, 0.2
HOST = Scenario(
    "a server of an article",
    base=math.exp(-(SPREAD**2 + NOISE**2) / 2),  # the mean of the hosts is then that of the article
    dispersion=5.0,
    spread=SPREAD,
    noise=NOISE,
)


def failover(dice: np.random.Generator) -> Replicate:
    """A day of failover after a week: control hosts went from 4,000 to 55,000 drops a day
    (x 13.75), test hosts from 6,383 to 27,000 (x 4.23). The ratio of ratios is 0.31."""
    return _simulate(dice, days=(7, 1), control=(4000, 55000), test=(6383, 27000))


def nic_week(dice: np.random.Generator) -> Replicate:
    """A week with new settings of the NIC after a week without: about 95 % fewer drops."""
    return _simulate(dice, days=(7, 7), control=(5000, 5000), test=(5000, 250))


ARTICLES: Mapping[str, tuple[Callable[[np.random.Generator], Replicate], float]] = {
    "failover": (failover, (27000 / 6383) / (55000 / 4000)),
    "NIC week": (nic_week, 0.05),
}
"""Each with the ratio of ratios that was put into it."""


def _simulate(
    dice: np.random.Generator,
    days: tuple[int, int],
    control: tuple[float, float],
    test: tuple[float, float],
) -> Replicate:
    """`control` and `test` are drops a day of one host, before and after."""
    bins = [DAY * count for count in days]
    is_test = dice.permutation(np.arange(2 * HOSTS) < HOSTS)
    levels: Array = np.where(is_test[:, None], [test], [control]) / DAY
    strata = np.zeros(2 * HOSTS, dtype=int)
    of_day = 1 + 0.3 * np.sin(2 * math.pi * np.arange(sum(bins)) / DAY)
    pressure = np.tile(of_day, (2 * HOSTS, 1))
    metrics = measure(HOST, dice, strata, pressure, np.repeat(levels, bins, axis=1))
    return Replicate(is_test, strata, split(metrics, bins[0]))
