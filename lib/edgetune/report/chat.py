# SPDX-License-Identifier: Apache-2.0
"""In which colour chat shows a rollout."""

from __future__ import annotations

_COLORS = {
    "held": "warning",
    "rolling_back": "danger",
    "rolled_back": "danger",
    "improved": "good",
    "degraded": "danger",
    "inconclusive": "warning",
}


def color_of(state: str, verdict: str) -> str:
    """Slack's name of the colour that says how a rollout does; empty if nothing is known yet."""
    return _COLORS.get(state) or _COLORS.get(verdict, "")
