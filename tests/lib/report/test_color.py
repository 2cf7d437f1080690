# SPDX-License-Identifier: Apache-2.0
"""In which colour a rollout is shown in chat."""

from __future__ import annotations

from edgetune.report.color import color_of


def test_a_colour_says_how_it_does() -> None:
    assert color_of("soaking", "") == color_of("soaking", "no_difference") == ""
    assert color_of("soaking", "improved") == color_of("complete", "improved") == "good"
    assert color_of("soaking", "degraded") == color_of("rolled_back", "improved") == "danger"
    assert color_of("held", "improved") == "warning"
