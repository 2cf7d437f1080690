# SPDX-License-Identifier: Apache-2.0
"""The scores of draws, and the fitted theta."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetune.judge.change import filled, fitted_theta
from edgetune.judge.permutation import make_draws, p_value
from edgetune.judge.scores import HANDICAP, Column, benefit, harm

Array = Any
STRATA = {"a": {"test": list("abcd"), "control": list("efgh")}}
DRAWS = make_draws(STRATA, seed=1)
BAD = np.array([3.0, 2.5, 3.5, 2.8, 0.1, -0.2, 0.0, 0.3])
changes_of = st.lists(st.floats(-3, 3), min_size=8, max_size=8).map(np.array)


def _harm(*columns: Column) -> Array:
    return harm(DRAWS, columns)


def test_the_worst_group_scores_highest_in_units_of_the_spread() -> None:
    scores = _harm(Column("drops", "soak", BAD))[:, 0]
    statistics = DRAWS.statistics(BAD[:, None])[:, 0]
    assert scores.argmax() == 0
    assert scores[0] == pytest.approx(statistics[0] / statistics.std())


def test_no_harm_is_no_score() -> None:
    scores = _harm(Column("drops", "soak", BAD), Column("drops", "soak", -BAD))
    assert scores[0, 0] > 0
    assert scores[0, 1] == -math.inf
    assert (np.isfinite(scores[:, 0]) == (DRAWS.statistics(BAD[:, None])[:, 0] > 1e-9)).all()


def test_only_what_is_beyond_the_margin_is_harm() -> None:
    size = float(DRAWS.statistics(BAD[:, None])[0, 0])
    free, near, out = (
        _harm(Column("cpu", "soak", BAD, margin))[:, 0] for margin in (0, size - 0.01, size + 0.01)
    )
    assert free[0] == near[0] > 0
    assert (near[1:] == -math.inf).all()
    assert (out == -math.inf).all()


def test_short_windows_need_to_show_more() -> None:
    scores = _harm(*(Column("drops", window, BAD) for window in ("soak", "quarter", "last")))[0]
    assert scores[0] - scores == pytest.approx(np.array(list(HANDICAP.values())))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-9, 9), min_size=8, max_size=8), st.sampled_from([1e-6, 0.01, 1e6]))
def test_the_size_of_changes_does_not_say_which_metric_is_worst(
    numbers: list[int], factor: float
) -> None:
    changes = np.array(numbers, dtype=float)
    scores = _harm(*(Column("drops", "soak", each) for each in (changes, factor * changes)))
    assert scores[:, 0] == pytest.approx(scores[:, 1], abs=1e-6)


@pytest.mark.parametrize("changes", [np.zeros(8), np.full(8, 0.7), np.full(8, -123.456)])
def test_what_is_the_same_on_all_hosts_is_neither_harm_nor_benefit(changes: Array) -> None:
    column = Column("drops", "soak", changes)
    scores = _harm(column, Column("drops", "last", changes)).max(axis=1)
    assert (scores == -math.inf).all()
    assert p_value(scores) == p_value(benefit(DRAWS, column)) == 1.0


def test_benefit_is_how_much_better_the_test_group_is() -> None:
    better = benefit(DRAWS, Column("drops", "soak", -BAD))
    assert better[0] == pytest.approx(BAD[:4].mean() - BAD[4:].mean())
    assert p_value(better) == pytest.approx(1 / 70)
    assert p_value(benefit(DRAWS, Column("drops", "soak", BAD))) == 1.0


def test_benefit_with_a_margin_is_being_better_than_worse_by_it() -> None:
    slightly = 0.05 * (BAD > 1) + 0.001 * np.arange(8)
    assert p_value(benefit(DRAWS, Column("cpu", "soak", slightly, 0.2))) == pytest.approx(1 / 70)
    assert p_value(benefit(DRAWS, Column("cpu", "soak", slightly, 0.01))) == 1.0


@settings(max_examples=40, deadline=None)
@given(changes_of, st.integers(0, 7))
def test_a_host_that_is_unknown_counts_as_the_mean_of_the_others(changes: Array, host: int) -> None:
    known = np.arange(8) != host
    hole = np.where(known, changes, np.nan)
    mean = np.where(known, changes, changes[known].mean())
    scores = _harm(*(Column("drops", "soak", filled(c, DRAWS.strata)) for c in (hole, mean)))
    assert np.array_equal(scores[:, 0], scores[:, 1])


@settings(max_examples=60, deadline=None)
@given(changes_of, st.floats(0.05, 0.95), st.floats(-5, 5))
def test_the_fitted_theta_is_that_of_hosts_on_a_line(
    before: Array, slope: float, level: float
) -> None:
    strata = np.repeat([0, 1], 4)
    after = slope * before + np.where(strata, level, 0)
    if min(np.ptp(before[:4]), np.ptp(before[4:])) > 0.01:
        assert fitted_theta(before, after, strata) == pytest.approx(slope, abs=1e-6)
        assert fitted_theta(before, -after, strata) == 0.0
        assert fitted_theta(before, 3 * before, strata) == 1.0


def test_the_fitted_theta_takes_hosts_that_are_known_in_both_windows() -> None:
    before = np.array([1.0, 2, 3, np.nan, 9, 5, 5, 5])
    after = np.array([0.5, 1, 1.5, 7, np.nan, 5, 5, 5])
    assert fitted_theta(before, after, np.repeat([0, 1], 4)) == pytest.approx(0.5)
    assert fitted_theta(np.ones(8), after, np.repeat([0, 1], 4)) == 1.0
    assert fitted_theta(np.full(8, np.nan), after, np.repeat([0, 1], 4)) == 1.0
