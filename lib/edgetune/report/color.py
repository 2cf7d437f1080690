# SPDX-License-Identifier: Apache-2.0
"""In which colour chat shows a rollout."""

from __future__ import annotations

from edgetune.documents.words import State, Verdict

_COLORS: dict[str, str] = {
    State.HELD: "warning",
    State.ROLLING_BACK: "danger",
    State.ROLLED_BACK: "danger",
    Verdict.IMPROVED: "good",
    Verdict.DEGRADED: "danger",
    Verdict.INCONCLUSIVE: "warning",
}


def color_of(state: str, verdict: str) -> str:
    """Slack's name of the colour that says how a rollout does; empty if nothing is known yet."""
    return _COLORS.get(state) or _COLORS.get(verdict, "")
