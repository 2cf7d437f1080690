# SPDX-License-Identifier: Apache-2.0
"""The picture of daily sums: a bar a day for test and control hosts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetune.base.durations import DAY
from edgetune.judge.measured_share import Coverage
from edgetune.judge.series import Series, Window
from edgetune.report.page import Material, page
from edgetune.report.pictures import day_picture
from edgetune.report.timeseries import days_of
from tests.lib.report.test_report import material, said

SLOT = 3600.0
DAYS = 8
Array = Any


@pytest.fixture
def kept(tmp_path: Path) -> Material:
    return material(tmp_path)


def window(kept: Material, start: float, events: Array) -> Window:
    """Hours from ``start`` on; ``events`` of the intent's metric are (hosts, hours)."""
    hosts, hours = events.shape
    series = Series(events, np.ones(events.shape))
    none = np.zeros(hosts)
    metric = kept.plan.intent.metric
    rest = {name: Series(*np.ones((2, hosts, hours))) for name in kept.plan.metrics}
    return Window(
        tuple(kept.plan.groups.hosts), start, start + SLOT * hours, SLOT, {**rest, metric: series},
        dict.fromkeys(kept.plan.metrics, "rx_packets"), np.ones((hosts, hours)), none, none, {},
        Coverage(none, {}, {}), {},
    )  # fmt: skip


def week(kept: Material) -> Array:
    """A hundred an hour; test hosts have a tenth from the fifth day on."""
    test = np.array([[own in kept.plan.groups.test] for own in kept.plan.groups.hosts])
    late = np.arange(24 * DAYS) >= 24 * 4
    return np.where(test & late, 10.0, 100.0)


def test_each_day_has_the_sum_of_a_host_of_each_group(kept: Material) -> None:
    days = days_of(kept.plan, [], window(kept, 10.0 * DAY, week(kept)))
    assert [day.start for day in days] == [DAY * (10 + number) for number in range(DAYS)]
    assert [day.sums["test"] for day in days] == [2400.0] * 4 + [240.0] * 4
    assert [day.sums["control"] for day in days] == [2400.0] * DAYS


def test_a_day_that_was_hardly_measured_has_no_bar_and_what_is_missing_is_as_the_rest(
    kept: Material,
) -> None:
    events = week(kept)
    test = [own in kept.plan.groups.test for own in kept.plan.groups.hosts]
    events[np.ix_(test, range(24, 34))] = np.nan
    events[:, 48:51] = np.nan
    # It begins in the middle of a day, and ends so.
    days = days_of(kept.plan, [], window(kept, 9.5 * DAY, events[:, : 24 * 7 + 2]))
    assert days[0].start == 10 * DAY and days[-1].start == 15 * DAY
    assert [day.sums["test"] for day in days[:2]] == [None, 2400.0]
    assert [day.sums["control"] for day in days[:2]] == [2400.0, 2400.0]


def test_a_few_days_and_gauges_have_no_picture(kept: Material) -> None:
    few = window(kept, 10.0 * DAY, week(kept)[:, : 24 * 2])
    assert days_of(kept.plan, [], few) == [] == days_of(kept.plan, [], None)
    gauge = replace(kept.plan, intent=replace(kept.plan.intent, metric="health_failed"))
    assert days_of(gauge, [], window(kept, 10.0 * DAY, week(kept))) == []
    assert day_picture("drops", days_of(kept.plan, [], few), []) is None
    nothing = window(kept, 10.0 * DAY, 0 * week(kept))
    assert day_picture("drops", days_of(kept.plan, [], nothing), []) is None


def test_a_page_of_a_week_shows_the_bars_and_says_what_they_show(kept: Material) -> None:
    html = page(replace(kept, window=window(kept, 10.0 * DAY, week(kept))))
    text = said(html)
    told = r"Test hosts fell from 2,400 to 240 a day \(−90 %\); control hosts stayed at 2,400 a day"
    assert re.search(rf"connections dropped by full accept queues, daily.*{told}", text)
    # For a wide and for a narrow page.
    assert len(re.findall(r'<rect class="(?:test|control)"', html)) == 2 * 2 * DAYS
    assert ">2k</text>" in html and "test Jan" in html and "daily" not in said(page(kept))
