# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from typing import Any

import pytest

from edgetune.base.durations import duration, read_duration, roughly
from edgetune.base.errors import InputError
from edgetune.base.fields import Fields

READ = {"90s": 90, "15m": 900, "2h": 7200, "1d": 86400, "1d12h": 129600, "1d2h3m4s": 93784}
READ |= {"1d4s": 86404, "2.5s": 2.5, "90": 90, "0.5": 0.5, "0": 0}


@pytest.mark.parametrize(("written", "seconds"), [*READ.items(), (90, 90), (0.5, 0.5)])
def test_a_duration_is_read(written: Any, seconds: float) -> None:
    assert read_duration(written) == seconds


NONE = ["", " ", "15x", "m", "1h30", "1h1d", "1m1m", "1.5h", "-5", "+5", "1e3", "15 m", "15M"]


@pytest.mark.parametrize(
    "written", [*NONE, "1d\n", "\u0663s", True, None, [], {"s": 1}, "x" * 10_000]
)
def test_what_is_no_duration_is_refused_with_the_forms(written: Any) -> None:
    says = "is no duration; write 90s, 15m, 2h, 1d, or seconds"
    with pytest.raises(ValueError, match=says) as caught:
        read_duration(written)
    assert len(str(caught.value)) < 120
    with pytest.raises(InputError, match=f"^parameter: soak: .* {says}"):
        Fields({"soak": "15x"}, "parameter").duration("soak")


@pytest.mark.parametrize("written", ["99999d", -1, math.nan, math.inf, -math.inf, 1e300, 10**400])
def test_a_duration_that_nobody_means_is_refused(written: Any) -> None:
    with pytest.raises(ValueError, match="^must be a duration from 0s to 10000d$"):
        read_duration(written)


WRITTEN = [(0, "0s", "0s"), (0.1, "0.1s", "0.1s"), (59, "59s", "59s"), (60, "1m", "1m")]
WRITTEN += [(90, "1m30s", "1m30s"), (3601, "1h1s", "1h"), (86400, "1d", "1d")]
WRITTEN += [(93784, "1d2h3m4s", "1d2h"), (86404.5, "1d4.5s", "1d"), (14 * 86400, "14d", "14d")]


@pytest.mark.parametrize(("seconds", "written", "short"), [*WRITTEN, (-90, "-1m30s", "-1m30s")])
def test_a_duration_is_written(seconds: float, written: str, short: str) -> None:
    assert (duration(seconds), roughly(seconds)) == (written, short)


@pytest.mark.parametrize("seconds", [*range(0, 200_000, 997), 0.001, 12.345, 999_999.5])
def test_what_is_written_is_read_as_the_same(seconds: float) -> None:
    assert read_duration(duration(seconds)) == seconds
