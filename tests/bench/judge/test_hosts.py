# SPDX-License-Identifier: Apache-2.0
"""The peers of bench.judge that take hosts as units: t-tests, and GrowthBook's sequences."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from bench.judge.peers import _hosts, growthbook, lan_demets
from bench.judge.peers._hosts import difference, t_tail
from tests.support.soaks import LOOKS, find, replicate

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


def test_a_difference_is_students_where_there_is_one_stratum() -> None:
    dice = np.random.default_rng(1)
    test = dice.permutation(np.arange(11) < 5)
    values = dice.normal(0, 1, 11) + test
    found = difference(values, test, np.zeros(11))
    groups = values[test], values[~test]
    pooled = sum(float(((one - one.mean()) ** 2).sum()) for one in groups) / 9
    assert found and found.freedom == 9
    assert found.mean == pytest.approx(groups[0].mean() - groups[1].mean())
    assert found.error == pytest.approx(math.sqrt(pooled * (1 / 5 + 1 / 6)))
    assert found.p_value() == t_tail(found.mean / found.error, 9)


def test_a_difference_is_taken_within_strata_and_at_the_same_covariates() -> None:
    dice = np.random.default_rng(2)
    strata, test = np.repeat([0, 1, 2], 8), np.tile([True, False], 12)
    before, noise = dice.normal(0, 3, 24), dice.normal(0, 0.1, 24)
    values = 100.0 * strata + 2 * before + 0.5 * test + noise
    found = difference(values, test, strata, [before])
    assert found and found.freedom == 24 - 3 - 1 - 1
    assert found.mean == pytest.approx(0.5, abs=0.1)
    assert found.error == pytest.approx(0.1 * math.sqrt(2 / 12), rel=0.4)
    other = difference(values, test, strata)
    assert other and other.error > 10 * found.error


def test_no_difference_is_claimed_where_none_can_be_estimated() -> None:
    values, test = np.array([1.0, 2, 3, 4]), np.array([True, True, False, False])
    assert difference(values, test, test) is None
    assert difference(values[1:3], test[1:3], np.zeros(2)) is None
    assert difference(np.full(4, np.nan), test, np.zeros(4)) is None
    same = difference(np.ones(4), test, np.zeros(4))
    assert same is None or same.p_value() > 0.4
    assert _hosts.Difference(1.0, 0.0, 2).p_value() == 0
    # A host without a value is left out.
    values, test = np.array([1.0, 2, np.nan, 0, 0.5]), np.array([1, 1, 1, 0, 0], dtype=bool)
    found = difference(values, test, np.zeros(5))
    assert found and (found.mean, found.freedom) == (pytest.approx(1.25), 2)


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


def test_growthbook_sees_little_unless_it_is_told_how_few_hosts_there_are() -> None:
    assert growthbook.width(24, 24) == pytest.approx(2.779, abs=1e-3)
    assert growthbook.width(24, growthbook.TUNING) == pytest.approx(12.79, abs=1e-2)
    harmed = replicate("full", effect=1.5)
    assert find("GrowthBook, tuned to the hosts").decide(harmed, LOOKS) is not None
    assert find("GrowthBook, tuned to 5,000 units").decide(harmed, LOOKS) is None


def test_growthbook_claims_nothing_of_groups_that_do_not_vary() -> None:
    assert growthbook.lower_end(np.ones(4), np.zeros(4)) == -math.inf
    assert growthbook.lower_end(np.array([2.0]), np.zeros(4)) == -math.inf
    # The baseline is taken off as far as the soak follows it.
    before = np.array([1.0, 2, 3, 4])
    assert growthbook.theta(before, 3 * before + 1) == pytest.approx(3)
    assert growthbook.theta(np.ones(4), before) == 0
