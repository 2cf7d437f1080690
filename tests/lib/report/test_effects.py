# SPDX-License-Identifier: Apache-2.0
"""Changes in words: nobody reads them backwards."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.documents.metric import READINGS
from edgetune.metrics.catalogue import METRICS, PACKETS, WORK
from edgetune.report.effects import bounds, level, moved, moved_per, said_of, share

DROPS = METRICS["listen_drops"]
LEVELS = st.floats(1e-6, 1e9)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        *((0.293, "−71 %"), (1.08, "+8 %"), (1.0004, "±0 %"), (0.9988, "−0.1 %"), (0, "−100 %")),
        *((6, "+500 %, 6×"), (2, "+100 %, 2×"), (0.9, "−10 %"), (0.0004, "−99.96 %")),
        (math.inf, "up from nothing"),
    ],
)
def test_a_share_has_a_sign(ratio: float, text: str) -> None:
    assert share(ratio) == text


def test_a_level_that_went_down_fell() -> None:
    assert moved(4.1, 1.3, "per s") == "fell from 4.1 to 1.3 per s (−68 %)"
    assert (
        moved_per(1e-6, 3e-6, DROPS, PACKETS) == "rose from 1 to 3 per million packets (+200 %, 3×)"
    )
    assert moved_per(2, 2.0001, DROPS, READINGS) == "stayed at 2 on average"
    assert moved(0, 5, "per s") == "rose from 0 to 5 per s"


def test_what_is_not_known_is_not_zero() -> None:
    assert moved(None, None, "per s") == "change not known"
    assert moved(None, 0, "per s") == "change not known; 0 per s after"
    assert moved_per(3e-6, None, DROPS, PACKETS) == "change not known; 3 per million packets before"
    assert (level(None, DROPS, PACKETS), level(0, DROPS, PACKETS)) == ("unknown", "0")


@given(LEVELS, LEVELS)
def test_verb_and_sign_agree_with_what_happened(before: float, after: float) -> None:
    text = moved(before, after, "per s")
    if text.startswith("stayed"):
        assert after == pytest.approx(before, rel=0.06)
    else:
        assert text.startswith("rose" if after > before else "fell")
        assert ("(−" in text) <= (after < before) and ("(+" in text) <= (after > before)


def test_better_heeds_which_direction_is_good() -> None:
    assert said_of(DROPS, 0.3, [0.2, 0.4]) == "better"
    assert said_of(DROPS, 3, [2, None]) == "worse"
    assert said_of(METRICS[WORK], 0.3, [None, 0.4]) == "worse"
    assert said_of(METRICS[WORK], 3, [2, 4]) == "better"
    assert said_of(METRICS["cpu"], 0.9, [0.8, 1.1]) == "no clear difference"
    assert said_of(METRICS["cpu"], 0.9, [None, None]) == "no clear difference"


def test_bounds_that_are_not_there_are_said() -> None:
    assert bounds([0.5, 1.25]) == "−50 % to +25 %"
    assert bounds([None, None]) == "−100 % to no upper bound"
