# SPDX-License-Identifier: Apache-2.0
"""When the last of several freezes ends; when each one is in force: ``test_lib_campaign``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.fields import Fields
from edgetune.base.freezes import (
    DAYS,
    Event,
    Freeze,
    ends_by_name,
    in_force,
    open_from,
    read_freeze,
)


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def window(**given: Any) -> Freeze:
    return read_freeze(Fields(given, "test"))


MONDAY = "2026-01-05T{}:00+00:00"
NIGHT = window(name="night", start="22:00", end="06:00")
MORNING = window(name="morning", days=["tue"], start="06:00", end="09:30")


@pytest.mark.parametrize(
    ("closed", "moment", "opens"),
    [
        ([], "23:00", "2026-01-05T23:00:00+00:00"),
        ([NIGHT], "12:00", "2026-01-05T12:00:00+00:00"),
        ([NIGHT], "23:00", "2026-01-06T06:00:00+00:00"),
        ([NIGHT, MORNING], "23:00", "2026-01-06T09:30:00+00:00"),
        ([window(days=["mon", "tue", "wed"])], "00:00", "2026-01-08T00:00:00+00:00"),
        ([window(days=DAYS[:6]), NIGHT], "00:00", "2026-01-11T06:00:00+00:00"),
        ([window()], "12:00", None),
        ([window(start="06:00", end="06:00")], "12:00", None),
        ([window(days=DAYS[:6]), window(days=["sun"], timezone="UTC")], "12:00", None),
        # 22:00 to 00:30 in UTC.
        (
            [window(end="23:00"), window(start="07:00", end="09:30", timezone="Asia/Tokyo")],
            "12:00",
            None,
        ),
    ],
)
def test_it_is_open_once_the_last_one_has_ended(
    closed: list[Freeze], moment: str, opens: str | None
) -> None:
    assert open_from(closed, at(MONDAY.format(moment))) == (opens and at(opens))


def test_of_two_with_one_name_the_last_end_is_told() -> None:
    closed = [Event("final", 0, 9), Event("final", 0, 5), Event("final", 6, 20)]
    assert ends_by_name(closed, 3) == {"final": 9}
    assert ends_by_name(closed, 30) == {}


def test_events_that_follow_each_other_are_one_wait() -> None:
    year = [Event(f"day {n}", n * 86400.0, (n + 1) * 86400.0) for n in range(365)]
    assert open_from(year, 10.0) == 365 * 86400.0


CLOCKS = st.integers(0, 24 * 60).map(lambda minutes: f"{minutes // 60:02d}:{minutes % 60:02d}")
WINDOWS = st.builds(
    window,
    days=st.lists(st.sampled_from(DAYS), min_size=1),
    start=CLOCKS.filter(lambda clock: clock != "24:00"),
    end=CLOCKS,
    timezone=st.sampled_from(["UTC", "Europe/Amsterdam", "Pacific/Kiritimati"]),
)


@given(closed=st.lists(WINDOWS, max_size=4), moment=st.integers(1_600_000_000, 1_900_000_000))
def test_nothing_is_in_force_then_and_something_is_until_then(
    closed: list[Freeze], moment: int
) -> None:
    opens = open_from(closed, moment)
    for later in range(moment, int(opens or moment + 7 * 86400), 3607):
        assert in_force(closed, later)
    assert opens is None or (opens >= moment and not in_force(closed, opens))
