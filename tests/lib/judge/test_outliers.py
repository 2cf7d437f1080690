# SPDX-License-Identifier: Apache-2.0
"""A single host that is much worse inside a fine mean is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgetune.documents.look import Outlier
from edgetune.documents.plan import Groups
from edgetune.judge.outliers import MOST, outliers
from edgetune.report.text import verdict_text
from tests.support.soaked_fleet import Fleet, times


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path).intends("no_harm", "retransmits", "health_p50")


@pytest.mark.slow
@pytest.mark.parametrize("group", ["test", "control"])
def test_a_host_that_is_many_times_slower_is_named(fleet: Fleet, group: str) -> None:
    (slow, *_) = getattr(fleet, group)
    (*_, last) = fleet.soaks([], [times("health_p50_ms", 8, [slow])])
    assert last.decision == "promote"
    (row,) = last.outliers
    assert row == Outlier(slow, group, "health_p50", row.times)
    assert row.times == pytest.approx(8, rel=0.1)
    said = f"far from its group: {slow} (health_p50 8 times as its {group} group)"
    assert f"; {said}" in last.reason
    assert f"\n  {said}" in verdict_text(last, fleet.plan)


def test_a_host_that_is_much_better_is_listed_only(fleet: Fleet) -> None:
    (*_, last) = fleet.soaks([], [times("health_p50_ms", 0.125, fleet.test[:1])])
    assert [row.host for row in last.outliers] == fleet.test[:1]
    assert "far from its group" not in last.reason


def test_hosts_that_are_alike_are_no_outliers(fleet: Fleet) -> None:
    for look in fleet.soaks([], [times("health_p50_ms", 1.1, fleet.test)]):
        assert look.outliers == []


def test_of_many_outliers_the_farthest_are_told(fleet: Fleet) -> None:
    names = [f"e{number:03d}" for number in range(300)]
    far = {name: 10.0 + number for number, name in enumerate(names[:50])}
    rows = {"cpu": {name: [1.0, 1.0, far.get(name, 1.0)] for name in names}}
    rows["cpu"]["e299"] = [0.0, 0.0, None]  # type: ignore[list-item]
    found = outliers(rows, {"lab": Groups(names[:200], names[200:])})
    assert [row.host for row in found] == names[49 : 49 - MOST : -1]
    fleet.intends("no_harm", "retransmits", "health_p50", "health_p99")
    slow = [times(f"health_{name}_ms", 8, fleet.test[:5]) for name in ("p50", "p99")]
    (*_, last) = fleet.soaks([], slow)
    assert "times as its test group) and 1 more" in last.reason
