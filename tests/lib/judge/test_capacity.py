# SPDX-License-Identifier: Apache-2.0
"""Weights for a measurement of capacity, and the ratio that comes of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.documents.capacity import (
    Capacity,
    CapacityPlan,
    CapacityRatio,
    Ladder,
    PairMeasured,
    PlannedPair,
    Rung,
)
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.plan import Guard
from edgetune.judge.capacity import (
    conclusion,
    crossing,
    ladder,
    limits_of,
    ratio_over,
    ratio_text,
    share_of,
    worst_beyond,
)

HEAVIEST = 256
LESS, MORE = Metric("drops", "dropped"), Metric("hits", "hit", better="higher")
METRICS = {"drops": LESS, "hits": MORE}


@given(
    weight=st.integers(1, 256),
    hosts=st.integers(1, 300),
    most=st.floats(0.001, 0.499),
    rungs=st.integers(1, 50),
    together=st.integers(1, 2),
)
def test_no_weight_of_a_ladder_is_beyond_the_most_and_all_are_whole_and_grow(
    weight: int, hosts: int, most: float, rungs: int, together: int
) -> None:
    others = hosts * weight
    made = ladder(weight, others, together, most, rungs, HEAVIEST)
    assert made.weights[0] == weight and len(made.weights) <= rungs + 1
    assert all(one < two <= HEAVIEST for one, two in zip(made.weights, made.weights[1:]))
    assert all(share <= most + 1e-9 for share in made.shares[1:])
    for own, share in zip(made.weights, made.shares):
        assert share == share_of(own, others + together * own)
    more = share_of(made.weights[-1] + 1, others + together * (made.weights[-1] + 1))
    assert more > most or made.weights[-1] >= HEAVIEST or made.shares[0] > most


def test_a_ladder_is_evenly_spaced_in_load() -> None:
    made = ladder(100, 9800, 2, 0.02, 5, HEAVIEST)
    assert made.shares == pytest.approx([0.01, 0.012, 0.014, 0.016, 0.018, 0.02], abs=1e-4)
    assert ladder(1, 6, 2, 0.2, 10, HEAVIEST).weights == [1, 2]
    assert ladder(1, 6, 2, 0.19, 10, HEAVIEST).weights == [1]


def _limits(host: str, limit: float | None = None, optional: bool = False) -> dict[str, object]:
    usual = {"t": {"drops": 1.0, "hits": 8.0}, "u": {"drops": 4.0, "hits": None}}
    guards = [Guard("hits", 0.25, optional)]
    return {**limits_of(host, usual, "u", "drops", limit, guards, METRICS)}


def test_limits_are_those_of_the_untuned_host_and_of_guards_the_own_ones() -> None:
    assert _limits("t") == {"drops": 6.0, "hits": 6.4}
    assert _limits("t", 3.0) == {"drops": 3.0, "hits": 6.4}
    assert _limits("u") == {"drops": 6.0, "hits": None}
    assert _limits("u", optional=True) == {"drops": 6.0}


@pytest.mark.parametrize(
    ("levels", "beyond"),
    [
        ({"drops": 3.0, "hits": 5.0}, ("", "")),
        ({"drops": 3.1, "hits": 5.0}, ("drops", "drops is 3.1, its limit is 3")),
        ({"drops": 0.0, "hits": 4.9}, ("hits", "hits is 4.9, its limit is 5")),
        ({"drops": None, "hits": 9.0}, ("", "drops is not measured")),
        ({"hits": 9.0}, ("", "drops is not measured")),
    ],
)
def test_what_is_worse_or_not_measured_is_beyond_its_limit(
    levels: dict[str, float | None], beyond: tuple[str, str]
) -> None:
    assert worst_beyond(levels, {"drops": 3.0, "hits": 5.0}, METRICS) == beyond


def _rungs(*levels: tuple[float, float | None]) -> list[Rung]:
    return [Rung(["t"], 1, load=load, levels={"t": {"drops": own}}) for load, own in levels]


def test_a_limit_is_reached_between_two_rungs() -> None:
    assert crossing(_rungs((1.0, 0.0), (2.0, 10.0)), "t", "drops", 2.5) == 1.25
    assert crossing(_rungs((1.0, None), (2.0, 10.0)), "t", "drops", 2.5) == 2.0
    assert crossing(_rungs((1.0, 10.0)), "t", "drops", 2.5) == 1.0
    # One that was beyond its limit before, and was not seen to be.
    assert crossing(_rungs((1.0, 5.0), (2.0, 10.0)), "t", "drops", 2.5) == 1.0


def measured(*pairs: tuple[dict[str, float], dict[str, float]]) -> Capacity:
    """Pairs that carried and reached limits so."""
    both = Ladder([1, 2], [0.1, 0.2])
    planned = [PlannedPair("t", "u", "s", both, both) for _ in pairs]
    plan = CapacityPlan("p", "r", "t", "drops", None, 0.2, 60, True, 1, planned)
    own = [PairMeasured(carried=carried, crossed=crossed) for carried, crossed in pairs]
    return Capacity(plan, "ana", 0.0, pairs=own)


BOTH, ONE = {"t": 1.0, "u": 1.0}, {"t": 1.0}


@pytest.mark.parametrize(
    ("carried", "crossed", "found"),
    [
        (BOTH, {"t": 3.0, "u": 2.0}, (1.5, "exactly")),
        ({"t": 2.4, "u": 1.0}, {"u": 2.0}, (1.2, "at_least")),
        ({"t": 1.0, "u": 4.0}, {"t": 2.0}, (0.5, "at_most")),
        # The untuned host was beyond its limit from the start: it may carry less than that.
        ({"t": 2.0}, {"t": 3.0, "u": 1.0}, (3.0, "at_least")),
        ({"u": 2.0}, {"t": 1.0, "u": 2.0}, (0.5, "at_most")),
        ({"t": 2.0, "u": 2.0}, {}, None),
        ({}, {"t": 1.0, "u": 1.0}, None),
        (ONE, {}, None),
        ({}, {}, None),
    ],
)
def test_a_pair_tells_a_ratio_or_a_bound_of_it(
    carried: dict[str, float], crossed: dict[str, float], found: tuple[float, str] | None
) -> None:
    told = ratio_over(measured((carried, crossed)))
    assert (told is None) == (found is None)
    if told and found:
        assert told == CapacityRatio(pytest.approx(found[0]), 1, found[1], metric="drops")


def test_over_pairs_it_has_an_interval_of_student_s_t() -> None:
    told = ratio_over(measured((BOTH, {"t": 3.0, "u": 2.0}), (BOTH, {"t": 2.0, "u": 1.0})))
    assert told is not None and told.interval is not None
    logs = math.log(1.5), math.log(2.0)
    half = 6.3138 * abs(logs[0] - logs[1]) / 2
    assert told.ratio == pytest.approx(math.sqrt(3.0)) and (told.pairs, told.bound) == (
        2,
        "exactly",
    )
    assert told.interval == pytest.approx(
        [math.exp(sum(logs) / 2 - half), math.exp(sum(logs) / 2 + half)], rel=1e-4
    )


@pytest.mark.parametrize(
    ("ratio", "bound", "carries", "short"),
    [
        (1.234, "exactly", "23 % more load than untuned ones", "+23 %"),
        (1.0, "exactly", "as much load as untuned ones", "±0 %"),
        (0.9, "exactly", "10 % less load than untuned ones", "−10 %"),
        (1.2, "at_least", "at least 20 % more load than untuned ones", "at least +20 %"),
        (1.2, "at_most", "at most 20 % more load than untuned ones", "at most +20 %"),
        # Nine tenths or more is a tenth less at the most.
        (0.9, "at_least", "at most 10 % less load than untuned ones", "at least −10 %"),
        (0.9, "at_most", "at least 10 % less load than untuned ones", "at most −10 %"),
        (4.0, "at_least", "at least 4 times as much load as untuned ones", "at least 4×"),
    ],
)
def test_a_ratio_is_told_the_right_way_round(
    ratio: float, bound: str, carries: str, short: str
) -> None:
    own = measured((BOTH, {"t": 3.0, "u": 2.0}))
    own.ratio = CapacityRatio(ratio, 1, bound, metric="drops")
    told = f"tuned hosts carry {carries} before drops passes its limit or a guard its own limit"
    assert conclusion(own) == f"{told}, by 1 of 1 pairs"
    assert ratio_text(own.ratio) == short


def test_a_limit_is_told_with_its_unit() -> None:
    own = measured((BOTH, {"t": 3.0, "u": 2.0}))
    hits = Metric("hits", "hit", better="higher", unit="%")
    own.plan = replace(own.plan, limit=95.0, definition=hits)
    own.ratio = CapacityRatio(1.5, 2, "exactly", [1.2, 1.9])
    assert "(+20 % to +90 %) before drops falls below 95 % or a guard" in conclusion(own)
    own.stopped, own.ratio = "it is night", None
    assert conclusion(own) == (
        "stopped: it is night; no ratio of tuned to untuned hosts was measured"
    )


def test_bounds_of_both_kinds_tell_nothing_and_of_one_kind_a_bound() -> None:
    least, most = ({"t": 2.4, "u": 1.0}, {"u": 2.0}), ({"t": 1.0, "u": 4.0}, {"t": 2.0})
    exact = (BOTH, {"t": 3.0, "u": 2.0})
    assert ratio_over(measured(least, most)) is None
    told = ratio_over(measured(least, exact))
    assert told is not None and (told.bound, told.interval) == ("at_least", None)
    assert told.ratio == pytest.approx(math.sqrt(1.2 * 1.5))
