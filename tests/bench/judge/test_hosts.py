# SPDX-License-Identifier: Apache-2.0
"""The peers of bench.judge that take hosts as units: t-tests, and GrowthBook's sequences."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from bench.judge.peers import growthbook, lan_demets
from bench.judge.peers._hosts import t_tail
from tests.support.soaks import LOOKS

SIXTEEN = tuple(look / 240 for look in LOOKS)
SPENDINGS = {
    "linear": lan_demets.power_family(1),
    "power 2": lan_demets.power_family(2),
    "O'Brien-Fleming": lan_demets.obrien_fleming,
}


def test_students_t_has_the_quantiles_of_the_tables() -> None:
    quantiles = {(6.3138, 1): 0.05, (2.3534, 3): 0.05, (1.9432, 6): 0.05, (-1.9432, 6): 0.95}
    quantiles |= {(4.1437, 10): 0.001, (1.7171, 22): 0.05, (0.0, 7): 0.5}
    found = {(quantile, freedom): t_tail(quantile, freedom) for quantile, freedom in quantiles}
    assert found == pytest.approx(quantiles, rel=3e-4)


def test_spending_by_the_power_2_is_that_of_spotifys_own_test() -> None:
    """`test_seq_bounds_run_over` of spotify/confidence: alpha 0.01, two-sided."""
    times = tuple(count / 810 for count in (250, 450, 630, 810))
    found = lan_demets.levels(times, lan_demets.power_family(2), 0.005)
    assert [2 * level for level in found] == pytest.approx(
        [0.00095, 0.00241, 0.00410, 0.00636], abs=1e-5
    )


def test_obrien_fleming_has_the_boundary_of_lan_and_demets() -> None:
    """Five looks, one-sided 0.025: 4.877, 3.357, 2.680, 2.290, 2.031."""

    def spending(passed: float) -> float:
        z = NormalDist().inv_cdf(1 - 0.0125)
        return 2 * lan_demets.upper_tail(z / math.sqrt(passed)) / 0.025

    found = lan_demets.levels((0.2, 0.4, 0.6, 0.8, 1.0), spending, 0.025)
    boundary = [-NormalDist().inv_cdf(level) for level in found]
    assert boundary == pytest.approx([4.877, 3.357, 2.680, 2.290, 2.031], abs=6e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPENDINGS)
def test_all_looks_together_cost_alpha(name: str) -> None:
    levels = lan_demets.levels(SIXTEEN, SPENDINGS[name])
    steps = np.random.default_rng(3).normal(0, 0.25, (40000, 16))
    z = np.cumsum(steps, axis=1) / np.sqrt(SIXTEEN)
    crossed = (z > [-NormalDist().inv_cdf(level) for level in levels]).any(axis=1)
    assert crossed.mean() == pytest.approx(0.05, abs=0.005)
    assert SPENDINGS[name](1.0) == pytest.approx(1)
    assert lan_demets.levels((1.0,), SPENDINGS[name])[0] == pytest.approx(0.05)


def test_growthbooks_sequence_is_that_of_its_own_test() -> None:
    """`TestSequentialOneSidedGreaterTTest.test_one_sided_ttest_absolute` of gbstats."""
    groups = []
    for total, squares, count in ((2422.7, 134698.29, 3461), (1396.87, 52377.9767, 3000)):
        variance = (squares - total**2 / count) / (count - 1)
        # Values with that mean and that variance.
        spread = math.sqrt(variance * (count - 1) / (count - count % 2))
        signs = np.resize([1.0, -1.0], count - count % 2)
        groups.append(total / count + np.append(spread * signs, np.zeros(count % 2)))
    found = growthbook.lower_end(groups[0], groups[1], growthbook.TUNING)
    assert found == pytest.approx(-0.12656844172804982, abs=1e-9)
