# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from typing import Any

import pytest

from edgetune.base.documents.table import SampleTable
from edgetune.judge.limits import beyond_limits, median_by_host, sickness
from tests.support.builders import reading


def test_a_reading_that_is_damaged_is_no_part_of_what_is_usual() -> None:
    values = (1.0, math.nan, math.inf, 10**400, None, 3.0)
    taken = [reading("a", at, health_p50_ms=value) for at, value in enumerate(values)]
    assert median_by_host(SampleTable(taken)) == {"a": 2.0}


@pytest.mark.parametrize(
    ("own", "baseline", "says"),
    [
        (None, 1.0, "does not answer"),
        ({"health_failed": 0.6, "health_p50_ms": None}, 1.0, "fails 60% of its health checks"),
        ({"health_failed": 0, "health_p50_ms": 400.0}, 2.0, "answers in 400 ms, 2.0 ms is usual"),
        ({"health_failed": 0, "health_p50_ms": 400.0}, 100.0, ""),
        ({"health_failed": 0, "health_p50_ms": 40.0}, 0.5, ""),
        ({"health_failed": math.nan, "health_p50_ms": math.inf}, 0.5, ""),
    ],
)
def test_hard_limits(own: Any, baseline: float, says: str) -> None:
    others = {
        "b": {"health_p50_ms": 1.0},
        "c": {"health_p50_ms": 2.0},
        "d": {"health_p50_ms": None},
        "e": {"health_p50_ms": math.nan},
    }
    now = {"a": own, **others} if own else others
    found = beyond_limits(["a"], now, {"a": baseline}, {"a"})
    assert found == ({"a": says} if says else {})


def test_half_a_pop_that_is_slow_is_held_against_the_other_half() -> None:
    changed = ["a", "b", "c", "d"]
    now = {name: {"health_p50_ms": 300.0 if name in changed else 3.0} for name in "abcdefgh"}
    found = beyond_limits(changed, now, dict.fromkeys(now, 2.0), changed)
    assert found == dict.fromkeys(changed, "answers in 300 ms, 3.0 ms is usual")


def test_where_all_are_changed_they_are_held_against_each_other() -> None:
    now = {name: {"health_p50_ms": 300.0 if name == "a" else 3.0} for name in "abcd"}
    assert list(beyond_limits(now, now, dict.fromkeys(now, 2.0), list(now))) == ["a"]
    slow = {name: {"health_p50_ms": 300.0} for name in "abcd"}
    assert beyond_limits(slow, slow, dict.fromkeys(slow, 2.0), list(slow)) == {}


@pytest.mark.parametrize("damaged", [float("nan"), float("inf"), -1.0, "slow", None])
def test_a_damaged_reading_makes_no_host_sick(damaged: Any) -> None:
    """A rollback puts hosts in order by it."""
    gauges = {"health_p50_ms": damaged, "health_failed": damaged}
    assert sickness(gauges, 2.0) == 0.0
    assert sickness({**gauges, "health_failed": 0.5}, 2.0) == 5.0
    assert sickness(None, 2.0) == float("inf")
