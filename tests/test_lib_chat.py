# SPDX-License-Identifier: Apache-2.0
"""How much of a text is shown in chat, and in which colour."""

from __future__ import annotations

import html

import pytest

from edgetune.report.chat import ROOM, chat_text, color_of


def test_what_fits_is_shown_as_it_is() -> None:
    for text in ("", "one\ntwo", "x" * ROOM, "<" * (ROOM // 4)):
        assert chat_text(text, "64f1") == text


@pytest.mark.parametrize("line", ["a row of the table", "p < 3 && q > 4 <<<<", "", "x" * 2000])
def test_a_longer_one_ends_with_a_whole_line(line: str) -> None:
    """Counted as it is sent, which is escaped."""
    lines = [f"{number} {line}" for number in range(2000)]
    *kept, last = chat_text("\n".join(lines), "64f1").split("\n")
    assert kept and kept == lines[: len(kept)]
    assert last == f"... {2000 - len(kept)} lines more: st2 execution get 64f1"
    assert len(html.escape("\n".join([*kept, last]), quote=False)) <= ROOM
    one_more = html.escape("\n".join([*lines[: len(kept) + 1], last]), quote=False)
    assert len(one_more) > ROOM


def test_a_line_that_is_too_long_is_left_out() -> None:
    assert chat_text("x" * 8000 + "\nlast") == "... 2 lines more"


def test_a_colour_says_how_it_does() -> None:
    assert color_of("soaking", "") == color_of("soaking", "no_difference") == ""
    assert color_of("soaking", "improved") == color_of("complete", "improved") == "good"
    assert color_of("soaking", "degraded") == color_of("rolled_back", "improved") == "danger"
    assert color_of("held", "improved") == "warning"
