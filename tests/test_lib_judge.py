# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetune.judge.compare import compare
from edgetune.judge.limits import beyond_limits
from edgetune.judge.permutation import interval, largest, make_draws, p_value
from edgetune.metrics.rates import host_values
from tests.builders import plan, samples

STRATA = {"a": {"test": ["t1", "t2", "t3"], "control": ["c1", "c2", "c3"]}}
TWO = {**STRATA, "b": {"test": ["t4", "t5"], "control": ["c4", "c5", "c6"]}}
values_of = st.floats(-5, 5, allow_nan=False)


def _values(strata: Any, numbers: list[float]) -> dict[str, float]:
    hosts = [host for s in strata.values() for group in s.values() for host in group]
    return dict(zip(hosts, numbers))


def test_all_draws_are_there_once_and_the_real_one_first() -> None:
    draws = make_draws(TWO, seed=1)
    assert draws.weights.shape == (20 * 10, 11)
    assert len({tuple(row) for row in draws.weights.round(12)}) == 200
    assert draws.shift()[0] == pytest.approx(1.0)


def test_many_hosts_are_sampled_with_the_real_draw_first() -> None:
    strata = {"a": {"test": [f"t{i}" for i in range(30)], "control": [f"c{i}" for i in range(30)]}}
    draws = make_draws(strata, seed=1)
    assert len(draws.weights) == 10000
    assert draws.shift()[0] == pytest.approx(1.0)


@settings(max_examples=50, deadline=None)
@given(st.lists(values_of, min_size=6, max_size=6))
def test_p_value_is_that_of_counting_by_hand(numbers: list[float]) -> None:
    values = _values(STRATA, numbers)
    real = sum(numbers[:3]) / 3 - sum(numbers[3:]) / 3
    drawn = [
        sum(numbers[i] for i in chosen) / 3
        - sum(n for i, n in enumerate(numbers) if i not in chosen) / 3
        for chosen in itertools.combinations(range(6), 3)
    ]
    by_hand = sum(value >= real - 1e-9 for value in drawn) / len(drawn)
    assert p_value(make_draws(STRATA, 1).statistic(values)) == pytest.approx(by_hand)


@settings(max_examples=50, deadline=None)
@given(st.lists(values_of, min_size=11, max_size=11), st.floats(0.02, 0.3))
def test_the_interval_is_what_shifted_tests_keep(numbers: list[float], alpha: float) -> None:
    draws = make_draws(TWO, seed=1)
    values = _values(TWO, numbers)
    low, high = interval(draws, draws.statistic(values), alpha)
    marked = dict(zip(draws.hosts, draws.test))
    for shift, side in ((low - 0.01, 1), (high + 0.01, -1)):
        moved = {host: values[host] - shift * marked[host] for host in values}
        assert p_value(side * draws.statistic(moved)) <= alpha + 1e-9
    for shift, side in ((low + 0.01, 1), (high - 0.01, -1)):
        moved = {host: values[host] - shift * marked[host] for host in values}
        assert p_value(side * draws.statistic(moved)) > alpha


def test_a_harmless_tuning_is_called_harmful_in_at_most_alpha() -> None:
    dice = np.random.default_rng(5)
    draws = make_draws({"a": {"test": list("abcd"), "control": list("efgh")}}, 1)
    alarms = 0
    for _ in range(2000):
        metrics = [draws.statistic(dict(zip(draws.hosts, dice.normal(size=8)))) for _ in range(3)]
        alarms += p_value(largest(metrics)) <= 0.05
    assert alarms / 2000 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)
    assert alarms > 0


def _look(made: dict[str, Any], before: dict[str, float], after: dict[str, float]) -> Any:
    return compare(
        made,
        made["strata"],
        samples(before, 0, 300, "one", seed=12),
        samples(after, 1000, 300, "two", seed=14),
    )


def _rates(made: dict[str, Any], test: float, control: float) -> dict[str, float]:
    split = made["strata"]["lab"]
    dice = random.Random(4)
    rates = dict.fromkeys(split["test"], test) | dict.fromkeys(split["control"], control)
    return {host: rate * dice.uniform(0.8, 1.25) for host, rate in rates.items()}


def test_fewer_drops_in_the_test_group_improve(tmp_path: Path) -> None:
    made = plan(tmp_path)
    look = _look(made, _rates(made, 3, 3), _rates(made, 0.3, 3))
    assert (look["verdict"], look["decision"]) == ("improved", "promote")
    row = look["metrics"][0]
    assert row["ratio"] == pytest.approx(0.1, rel=0.3)
    assert row["interval"][0] < row["ratio"] < row["interval"][1]


def test_more_drops_in_the_test_group_degrade(tmp_path: Path) -> None:
    made = plan(tmp_path)
    look = _look(made, _rates(made, 3, 3), _rates(made, 9, 3))
    assert (look["verdict"], look["decision"]) == ("degraded", "roll_back")
    assert "listen_drops got worse" in look["reason"]


@pytest.mark.parametrize("surge", [0.2, 5.0])
def test_a_surge_that_hits_both_groups_changes_no_verdict(tmp_path: Path, surge: float) -> None:
    made = plan(tmp_path)
    look = _look(made, _rates(made, 3, 3), _rates(made, 3 * surge, 3 * surge))
    assert (look["verdict"], look["decision"]) == ("no_difference", "hold")
    look = _look(made, _rates(made, 3, 3), _rates(made, 0.3 * surge, 3 * surge))
    assert look["verdict"] == "improved"


def test_unequal_baselines_are_no_effect(tmp_path: Path) -> None:
    made = plan(tmp_path)
    look = _look(made, _rates(made, 6, 2), _rates(made, 6, 2))
    assert look["verdict"] == "no_difference"


@pytest.mark.parametrize("window", ["baseline", "soak"])
def test_a_host_without_data_holds(tmp_path: Path, window: str) -> None:
    made = plan(tmp_path)
    before, after = _rates(made, 3, 3), _rates(made, 0.3, 3)
    del (before if window == "baseline" else after)["e005"]
    look = _look(made, before, after)
    assert (look["verdict"], look["decision"]) == ("inconclusive", "hold")
    assert look["reason"] == f"no data from e005 in the {window}: 0 of 31 samples"


def test_a_host_that_died_in_the_soak_holds(tmp_path: Path) -> None:
    made = plan(tmp_path)
    before = samples(_rates(made, 3, 3), 0, 300, "one")
    after = samples(_rates(made, 0.3, 3), 1000, 300, "two")
    dead = made["strata"]["lab"]["test"][0]
    after = [row for row in after if row["host"] != dead or row["time"] < 1020]
    look = compare(made, made["strata"], before, after)
    assert (look["verdict"], look["decision"]) == ("inconclusive", "hold")
    assert look["reason"] == f"no data from {dead} in the soak: 2 of 31 samples"


def test_a_host_that_rebooted_in_the_soak_holds(tmp_path: Path) -> None:
    made = plan(tmp_path)
    before = samples(_rates(made, 3, 3), 0, 300, "one")
    after = samples(_rates(made, 0.3, 3), 1000, 300, "two")
    after = [
        {**row, "boot_id": "three"} if (row["host"], row["time"]) > ("e007", 1200) else row
        for row in after
    ]
    look = compare(made, made["strata"], before, after)
    assert look["reason"] == "e007 rebooted in the soak"


def test_too_few_hosts_after_skips_hold(tmp_path: Path) -> None:
    made = plan(tmp_path)
    left = {"lab": {"test": made["strata"]["lab"]["test"][:1], "control": []}}
    assert compare(made, left, [], [])["reason"] == "one of the groups is empty"
    left["lab"]["control"] = made["strata"]["lab"]["control"]
    assert "no p-value below 0.200 is possible" in compare(made, left, [], [])["reason"]


def test_no_drops_at_all_are_inconclusive(tmp_path: Path) -> None:
    made = plan(tmp_path)
    look = _look(made, _rates(made, 0, 0), _rates(made, 0, 0))
    assert look["verdict"] == "inconclusive"
    assert "only 0 events" in look["reason"]


def test_no_harm_is_promoted_only_inside_its_margin(tmp_path: Path) -> None:
    made = plan(tmp_path)
    made["intent"] = {"goal": "no_harm", "metric": "listen_drops", "margin": 0.5}
    near = _look(made, _rates(made, 30, 30), _rates(made, 30, 30))
    assert (near["verdict"], near["decision"]) == ("no_difference", "promote")
    made["intent"]["margin"] = 0.001
    far = _look(made, _rates(made, 3, 3), _rates(made, 3, 3))
    assert (far["verdict"], far["decision"]) == ("inconclusive", "hold")


def test_counters_are_compared_inside_one_boot_only() -> None:
    first = samples({"e000": 5}, 0, 100, "one")
    second = samples({"e000": 5}, 200, 100, "two")
    value = host_values([*first, *second], "listen_drops")["e000"]
    grown = sum(s[-1]["counters"]["listen_drops"] for s in (first, second))
    assert value.events == grown
    assert value.value == pytest.approx((grown + 0.5) / 200)


def test_sweeps_that_overlap_are_put_in_the_order_of_the_host_s_clock() -> None:
    swept = samples({"e000": 5}, 0, 100)
    swept[4]["time"], swept[5]["time"] = swept[5]["time"], swept[4]["time"]
    grown = swept[-1]["counters"]["listen_drops"]
    assert host_values(swept, "listen_drops")["e000"].events == grown


def test_a_counter_that_shrinks_inside_a_boot_is_no_data() -> None:
    broken = samples({"e000": 5}, 0, 100)
    broken[-1]["counters"]["listen_drops"] = 0
    assert host_values(broken, "listen_drops") == {}


@pytest.mark.parametrize(
    ("own", "baseline", "says"),
    [
        (None, 1.0, "does not answer"),
        ({"health_failed": 0.6, "health_p50_ms": None}, 1.0, "fails 60% of its health checks"),
        ({"health_failed": 0, "health_p50_ms": 400.0}, 2.0, "answers in 400 ms, 2.0 ms is usual"),
        ({"health_failed": 0, "health_p50_ms": 400.0}, 100.0, ""),
        ({"health_failed": 0, "health_p50_ms": 40.0}, 0.5, ""),
    ],
)
def test_hard_limits(own: Any, baseline: float, says: str) -> None:
    others = [{"health_p50_ms": 1.0}, {"health_p50_ms": 2.0}, {"health_p50_ms": None}]
    assert beyond_limits(own, baseline, others) == says
