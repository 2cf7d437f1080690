# SPDX-License-Identifier: Apache-2.0
"""The scores of draws, and the fitted theta."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.documents.plan import Groups
from edgetune.judge.comparison import HANDICAP, Column, harm
from edgetune.judge.permutation import make_draws, p_value
from edgetune.judge.standardise import filled, lasting
from tests.support.examples import examples

Array = Any
STRATA = {"a": Groups(list("abcd"), list("efgh"))}
DRAWS = make_draws(STRATA, seed=1)
BAD = np.array([3.0, 2.5, 3.5, 2.8, 0.1, -0.2, 0.0, 0.3])
changes_of = st.lists(st.floats(-3, 3), min_size=8, max_size=8).map(np.array)


def _harm(*columns: Column) -> Array:
    return harm(DRAWS.statistics(np.stack([c.changes for c in columns], axis=1)), columns)


def test_the_worst_group_scores_highest_in_units_of_the_spread() -> None:
    scores = _harm(Column("drops", "soak", BAD))[:, 0]
    statistics = DRAWS.statistics(BAD[:, None])[:, 0]
    assert scores.argmax() == 0
    assert scores[0] == pytest.approx(statistics[0] / statistics.std())


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


@examples(60)
@given(st.lists(st.integers(-9, 9), min_size=8, max_size=8), st.sampled_from([1e-6, 0.01, 1e6]))
def test_the_size_of_changes_does_not_say_which_metric_is_worst(
    numbers: list[int], factor: float
) -> None:
    changes = np.array(numbers, dtype=float)
    scores = _harm(*(Column("drops", "soak", each) for each in (changes, factor * changes)))
    assert scores[:, 0] == pytest.approx(scores[:, 1], abs=1e-6)


@pytest.mark.parametrize("changes", [np.zeros(8), np.full(8, 0.7), np.full(8, -123.456)])
def test_what_is_the_same_on_all_hosts_is_no_harm(changes: Array) -> None:
    column = Column("drops", "soak", changes)
    scores = _harm(column, Column("drops", "last", changes)).max(axis=1)
    assert (scores == -math.inf).all()
    assert p_value(scores) == 1.0


@examples(40)
@given(changes_of, st.integers(0, 7))
def test_a_host_that_is_unknown_counts_as_the_mean_of_the_others(changes: Array, host: int) -> None:
    known = np.arange(8) != host
    hole = np.where(known, changes, np.nan)
    mean = np.where(known, changes, changes[known].mean())
    scores = _harm(*(Column("drops", "soak", filled(c, DRAWS.strata)) for c in (hole, mean)))
    assert np.array_equal(scores[:, 0], scores[:, 1])


def test_what_lasts_is_what_both_halves_show() -> None:
    strata = np.repeat([0, 1], 4)
    levels, passing = np.array([0.0, 1, 2, 3, 5, 6, 7, 8]), np.tile([0.4, -0.4], 4)
    assert lasting(levels, levels, levels, strata) == 1.0
    assert lasting(levels, levels + passing, levels - passing, strata) == pytest.approx(0.872)
    assert lasting(passing / 9, passing, -passing, strata) == 0.0
    assert lasting(np.ones(8), levels, passing, strata) == 1.0


@given(changes_of, st.floats(-5, 5))
def test_the_level_of_a_stratum_neither_lasts_nor_passes(levels: Array, level: float) -> None:
    strata = np.repeat([0, 1], 4)
    first, second = levels + 0.1, levels * 0.9
    moved = np.where(strata, level, 0)
    if min(np.ptp(levels[:4]), np.ptp(levels[4:])) > 0.01:
        found = lasting(levels + moved, first + moved, second - moved, strata)
        assert found == pytest.approx(lasting(levels, first, second, strata), abs=1e-6)


def test_hosts_that_are_unknown_say_nothing_of_what_lasts() -> None:
    strata = np.repeat([0, 1], 4)
    known = np.array([0.0, 1, 2, 3, 5, 6, 7, 8])
    halves = known + 0.2, known * np.array([1, 1, 1, 0, 1, 1, 1, 1])
    missing = np.where(np.arange(8) == 3, np.nan, known)
    assert lasting(known, *halves, strata) < 0.95
    assert lasting(missing, *halves, strata) == pytest.approx(1.0)
    assert lasting(np.full(8, np.nan), *halves, strata) == 1.0
