# SPDX-License-Identifier: Apache-2.0
"""The draws of a permutation test, its p-value and the interval that inverts it."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.documents.plan import Groups, Plan, read_plan
from edgetune.base.documents.reading import digest_of
from edgetune.base.errors import InputError
from edgetune.judge.permutation import draws_of, interval, make_draws, p_value
from tests.support.builders import plan
from tests.support.examples import examples

THREE = {"a": Groups(["t1", "t2", "t3"], ["c1", "c2", "c3"])}
TWO = {**THREE, "b": Groups(["t4", "t5"], ["c4", "c5", "c6"])}
FEW = {"a": Groups(["t1", "t2"], ["c1", "c2", "c3"])}
numbers_of = st.floats(-5, 5, allow_nan=False)
ties_of = st.integers(-2, 2).map(float)


def _large(hosts: int) -> dict[str, Any]:
    groups = Groups([f"t{i}" for i in range(hosts)], [f"c{i}" for i in range(hosts)])
    return {"a": groups}


def _column(draws: Any, values: dict[str, float]) -> Any:
    return np.array([values[host] for host in draws.hosts])


def _statistics(draws: Any, column: Any) -> Any:
    return draws.statistics(column[:, None])[:, 0]


def _shown(draws: Any) -> Any:
    return _statistics(draws, draws.test.astype(float))


def test_all_draws_are_there_once_and_the_real_one_first() -> None:
    draws = make_draws(TWO, seed=1)
    assert draws.chosen.shape == (20 * 10, 11)
    assert len({tuple(row) for row in draws.chosen}) == 200
    assert [h for h, test in zip(draws.hosts, draws.test) if test] == ["t1", "t2", "t3", "t4", "t5"]
    assert _shown(draws)[0] == pytest.approx(1.0)
    for stratum, size in enumerate((3, 2)):
        assert set(draws.chosen[:, draws.strata == stratum].sum(axis=1)) == {size}
    few = make_draws({"a": Groups(["t1"], ["c1", "c2"])}, seed=1)
    statistics = _statistics(few, np.array([5.0, 0.0, 0.0]))
    assert interval(statistics, _shown(few), 0.05) == (-math.inf, math.inf)


def test_many_hosts_are_sampled_with_the_real_draw_first() -> None:
    draws = make_draws(_large(30), seed=1)
    assert len(draws) == 10000
    assert draws.test.tolist() == [host.startswith("t") for host in draws.hosts]
    assert set(draws.chosen.sum(axis=1)) == {30}
    assert abs(draws.chosen[1:].mean(axis=0) - 0.5).max() < 0.03
    assert (make_draws(_large(30), seed=1).chosen == draws.chosen).all()
    for seed in (2, -1):
        assert (make_draws(_large(30), seed=seed).chosen != draws.chosen).any()


UNLIKE = {**_large(9), "b": Groups(["x"], ["y", "z"])}


@pytest.mark.parametrize(
    "drawn_by, digest, first",
    [
        pytest.param({}, "c41c5f5778919a9e", [187, 133, 32], id="before"),
        pytest.param({"draws": 2}, "42a8ea193bb2c49e", [73, 230, 136], id="by keys"),
    ],
)
def test_a_plan_is_drawn_for_ever_as_when_it_was_made(
    tmp_path: Path, drawn_by: dict[str, int], digest: str, first: list[int]
) -> None:
    """The draws that are alive in the record of a look are told by their numbers alone."""
    chosen = draws_of(_stored(tmp_path, drawn_by), UNLIKE).chosen
    assert np.packbits(chosen[1]).tolist() == first
    assert hashlib.sha256(np.packbits(chosen).tobytes()).hexdigest()[:16] == digest


def test_a_plan_of_a_later_version_is_not_drawn(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="plan: draws: is 3, which this version cannot draw by"):
        draws_of(_stored(tmp_path, {"draws": 3}), UNLIKE)


def _stored(folder: Path, drawn_by: dict[str, int]) -> Plan:
    """A plan with seed 7, as read from a document that tells no other ``draws`` than these."""
    document = plan(folder, seed=7).document()
    del document["draws"], document["digest"]
    document.update(drawn_by)
    digest = digest_of(document)
    return read_plan(json.dumps({**document, "digest": digest}), digest)


def test_keys_that_tie_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    real = np.random.PCG64

    class Tying:
        """Its first bits are all alike."""

        def __init__(self, seed: int) -> None:
            self._dice, self._zero = real(seed), True

        def random_raw(self, size: int) -> Any:
            drawn: Any = self._dice.random_raw(size)
            is_zero, self._zero = self._zero, False
            return np.zeros_like(drawn) if is_zero else drawn

    monkeypatch.setattr("numpy.random.PCG64", Tying)
    draws = make_draws(_large(30), seed=1, draws=300)
    assert set(draws.chosen.sum(axis=1)) == {30}
    assert abs(draws.chosen[1:].mean(axis=0) - 0.5).max() < 0.2


@pytest.mark.parametrize("strata", [THREE, FEW])
@examples(40)
@given(data=st.data())
def test_p_value_is_that_of_counting_by_hand(strata: Any, data: Any) -> None:
    test, control = strata["a"].test, strata["a"].control
    hosts = [*test, *control]
    size = len(hosts)
    drawn = st.lists(numbers_of | ties_of, min_size=size, max_size=size)
    values = dict(zip(hosts, data.draw(drawn)))

    def difference(chosen: tuple[str, ...]) -> float:
        others = [host for host in hosts if host not in chosen]
        means = [math.fsum(values[host] for host in own) / len(own) for own in (chosen, others)]
        return means[0] - means[1]

    every = [difference(chosen) for chosen in itertools.combinations(hosts, len(test))]
    by_hand = sum(value >= difference(tuple(test)) - 1e-9 for value in every) / len(every)
    draws = make_draws(strata, 1)
    assert p_value(_statistics(draws, _column(draws, values))) == pytest.approx(by_hand)


def test_strata_weigh_as_much_as_they_tell() -> None:
    draws = make_draws(TWO, seed=1)
    means = {"a": 4.0, "b": 1.0}
    values = {h: means[name] for name, groups in TWO.items() for h in groups.test}
    values.update({h: 0.0 for groups in TWO.values() for h in groups.control})
    weights = 3 * 3 / 6, 2 * 3 / 5
    by_hand = (4.0 * weights[0] + 1.0 * weights[1]) / sum(weights)
    assert _statistics(draws, _column(draws, values))[0] == pytest.approx(by_hand)


@pytest.mark.slow
@examples(40)
@given(
    st.lists(numbers_of | ties_of, min_size=11, max_size=11),
    st.lists(numbers_of, min_size=2, max_size=2),
)
def test_the_level_of_a_stratum_changes_nothing(numbers: list[float], levels: list[float]) -> None:
    draws = make_draws(TWO, seed=1)
    values = np.array(numbers)
    moved = values + np.array(levels)[draws.strata]
    assert _statistics(draws, moved) == pytest.approx(_statistics(draws, values), abs=1e-9)


@examples(40)
@given(
    numbers=st.lists(numbers_of | ties_of, min_size=11, max_size=11),
    dice=st.randoms(use_true_random=False),
)
def test_the_order_of_hosts_and_strata_changes_nothing(
    numbers: list[float], dice: random.Random
) -> None:
    values = dict(zip(make_draws(TWO, 1).hosts, numbers))
    shuffled = {
        name: Groups(*(dice.sample(own, len(own)) for own in (TWO[name].test, TWO[name].control)))
        for name in dice.sample(sorted(TWO), len(TWO))
    }
    found = []
    for strata in (TWO, shuffled):
        draws = make_draws(strata, seed=dice.randrange(100))
        statistics = _statistics(draws, _column(draws, values))
        found.append((p_value(statistics), *interval(statistics, _shown(draws), 0.05)))
    assert found[0] == pytest.approx(found[1], abs=1e-8)


@examples(40)
@given(st.lists(numbers_of | ties_of, min_size=11, max_size=11), st.floats(0.02, 0.3))
def test_the_interval_is_what_shifted_tests_keep(numbers: list[float], alpha: float) -> None:
    draws = make_draws(TWO, seed=1)
    values, marked = np.array(numbers), draws.test.astype(float)
    low, high = interval(_statistics(draws, values), _shown(draws), alpha)
    for shift, side in ((low - 0.01, 1), (high + 0.01, -1)):
        assert p_value(side * _statistics(draws, values - shift * marked)) <= alpha + 1e-9
    for shift, side in ((low + 0.01, 1), (high - 0.01, -1)):
        assert p_value(side * _statistics(draws, values - shift * marked)) > alpha


@pytest.mark.parametrize("values", [numbers_of, ties_of])
@examples(25)
@given(data=st.data())
def test_no_p_value_is_too_small_too_often(values: Any, data: Any) -> None:
    """Every draw takes its turn as the real one: of all, at most a share a has p <= a."""
    draws = make_draws(TWO, seed=1)
    statistics = _statistics(draws, np.array(data.draw(st.lists(values, min_size=11, max_size=11))))
    turns = [np.roll(statistics, -turn) for turn in range(len(draws))]
    found = np.sort([p_value(turn) for turn in turns])
    assert (found >= np.arange(1, len(draws) + 1) / len(draws) - 1e-12).all()


def test_ties_count_against_the_real_draw() -> None:
    assert p_value(np.array([1.0, 1.0, 0.0, 0.0])) == 0.5
    assert p_value(np.array([1.0, 1.0 + 1e-12, 0.0, 0.0])) == 0.5
    assert p_value(np.array([-math.inf, -math.inf, -math.inf])) == 1.0


def test_a_stratum_with_one_group_only_says_nothing() -> None:
    lone = {"b": Groups(["t9"], []), "c": Groups([], ["c9"])}
    assert make_draws({**lone, **THREE}, seed=1).hosts == make_draws(THREE, seed=1).hosts


@pytest.mark.parametrize("strata", [{}, {"a": Groups(["t1"], [])}, {"a": Groups([], ["c1"])}])
def test_an_empty_group_is_refused(strata: Any) -> None:
    with pytest.raises(InputError, match="comparison: strata: one of the groups is empty"):
        make_draws(strata, seed=1)
