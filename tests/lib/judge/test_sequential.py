# SPDX-License-Identifier: Apache-2.0
"""Looking often at one alpha: how many draws may be out, and which."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetune.base.documents.plan import Groups
from edgetune.base.errors import InputError
from edgetune.judge.comparison import HANDICAP, Column, harm
from edgetune.judge.permutation import budget, make_draws, pack, take_out, unpack
from tests.support.examples import examples

HOSTS = tuple("abcdefg")
scores_of = st.floats(-3, 3) | st.integers(-2, 2).map(float) | st.just(-math.inf)
shares_of = st.lists(st.floats(0.01, 1), min_size=1, max_size=5).map(sorted)


def _flags(size: int) -> Any:
    return st.lists(st.booleans(), min_size=size, max_size=size)


def test_the_budget_is_all_spent_at_the_end_and_never_more() -> None:
    even = [budget(0.05, look / 12, 10000) for look in range(1, 13)]
    late = [budget(0.05, (look / 12) ** 3, 10000) for look in range(1, 13)]
    assert even == [41, 83, 125, 166, 208, 250, 291, 333, 375, 416, 458, 500]
    assert late == [0, 2, 7, 18, 36, 62, 99, 148, 210, 289, 385, 500]
    assert [budget(0.05, look / 12, 70) for look in range(1, 13)] == [0] * 3 + [1] * 3 + [2] * 4 + [
        3,
        3,
    ]


EVERY = [True] * 4


@pytest.mark.parametrize(
    ("scores", "alive", "most", "left"),
    [
        ([0.5, 3.0, 1.0, 2.0], EVERY, 2, [True, False, True, False]),
        ([0.5, 3.0, 1.0, 2.0], EVERY, 0, EVERY),
        ([0.5, 3.0, 1.0, 2.0], EVERY, 4, [False] * 4),
        # What is out stays out and counts.
        ([3.0, -9.0, 2.0, 1.0], [True, False, True, True], 2, [False, False, True, True]),
        ([3.0, -9.0, 2.0, 1.0], [True, False, True, True], 1, [True, False, True, True]),
        # What shows nothing is never taken out.
        ([-math.inf, 1.0, -math.inf, 2.0], EVERY, 4, [True, False, True, False]),
        ([-math.inf] * 4, EVERY, 4, EVERY),
    ],
)
def test_the_draws_with_the_largest_scores_are_taken_out(
    scores: list[float], alive: list[bool], most: int, left: list[bool]
) -> None:
    flags = np.array(alive)
    assert take_out(np.array(scores), flags, most).tolist() == left
    assert flags.tolist() == alive


@examples(200)
@given(st.lists(st.tuples(scores_of, st.booleans()), min_size=1, max_size=12), st.integers(0, 12))
def test_never_more_than_the_budget_and_never_one_of_a_tie_alone(
    rows: list[tuple[float, bool]], most: int
) -> None:
    scores, alive = (np.array(column) for column in zip(*rows))
    left = take_out(scores, alive, most)
    gone = alive & ~left
    assert not (left & ~alive).any()
    assert not gone.any() or (~left).sum() <= most
    for out, stays in itertools.product(scores[gone], scores[left]):
        assert out > stays
    if left.any() and scores[left].max() > -math.inf:
        next_ones = (scores[left] >= scores[left].max() - 1e-9).sum()
        assert (~left).sum() + next_ones > most


def _alarms(looks: Sequence[Sequence[Column]], shares: Sequence[float], alpha: float) -> int:
    """How many of all assignments would ever have been called harmful, each in its turn."""
    alarms = ways = 0
    for test in itertools.combinations(range(len(HOSTS)), 3):
        ways += 1
        order = [*test, *(host for host in range(len(HOSTS)) if host not in test)]
        names = [HOSTS[host] for host in order]
        draws = make_draws({"a": Groups(names[:3], names[3:])}, seed=1)
        alive = np.ones(len(draws), dtype=bool)
        for columns, share in zip(looks, shares):
            turned = [Column(c.metric, c.window, c.changes[order], c.margin) for c in columns]
            scores = harm(
                draws.statistics(np.stack([c.changes for c in turned], axis=1)), turned
            ).max(axis=1)
            alive = take_out(scores, alive, budget(alpha, share, len(draws)))
        alarms += not alive[0]
    assert ways == 35
    return alarms


@pytest.mark.parametrize("whole", [False, True], ids=["any numbers", "ties"])
@examples(12)
@given(data=st.data())
def test_of_all_assignments_at_most_alpha_are_ever_called_harmful(whole: bool, data: Any) -> None:
    """Exact: without an effect, over several looks, windows and metrics, and with ties."""
    values = st.integers(-1, 2).map(float) if whole else st.floats(-2, 2)
    changes = st.lists(values, min_size=7, max_size=7).map(np.array)
    margin = st.sampled_from([0.0, 0.2])
    column = st.builds(Column, st.just("drops"), st.sampled_from(list(HANDICAP)), changes, margin)
    shares = data.draw(shares_of)
    looks = [data.draw(st.lists(column, min_size=1, max_size=3)) for _ in shares]
    alpha = data.draw(st.sampled_from([0.03, 0.1, 0.3]))
    assert _alarms(looks, shares, alpha) <= math.floor(alpha * 35)


def test_an_alpha_is_used_up_where_nothing_ties() -> None:
    changes = np.array([0.11, 0.92, 0.37, 0.05, 0.61, 0.23, 0.48])
    looks = [[Column("drops", "soak", changes * factor**2)] for factor in (1, 2, 3)]
    assert _alarms(looks, (0.2, 0.6, 1.0), 0.1) == 3


@settings(deadline=None)
@given(st.integers(1, 200).flatmap(_flags))
def test_what_is_packed_is_unpacked(flags: list[bool]) -> None:
    alive = np.array([flags, flags[::-1]])
    assert unpack(pack(alive), 2, len(flags)).tolist() == alive.tolist()


def test_what_was_packed_before_there_were_suppositions_is_so_under_all_of_them() -> None:
    alive = np.array([[True, False, True]])
    assert unpack(pack(alive), 2, 3).tolist() == [[True, False, True]] * 2


@pytest.mark.parametrize("draws", [64, 71, 72, 80, 1])
def test_another_number_of_draws_is_refused(draws: int) -> None:
    with pytest.raises(InputError, match=f"look: alive: is of .* draws, not of {draws}"):
        unpack(pack(np.ones((1, 90), dtype=bool)), 1, draws)
