# SPDX-License-Identifier: Apache-2.0
"""In which colour chat shows a rollout, and which words of a status need a person."""

from __future__ import annotations

import re

from edgetune.base.documents.words import State, Verdict

_COLORS: dict[str, str] = {
    State.HELD: "warning",
    State.ROLLING_BACK: "danger",
    State.ROLLED_BACK: "danger",
    Verdict.IMPROVED: "good",
    Verdict.DEGRADED: "danger",
    Verdict.INCONCLUSIVE: "warning",
}


ATTENTION = re.compile(
    r"\b(?:EVERYTHING IS STOPPED|NO OWNER|WITHOUT AN OWNER|OVERDUE|QUARANTINED|HELD|PAUSED"
    r"|HANDING OVER|NO SAMPLE|DAMAGED|NOT KNOWN|NOT seen out of service|(?:NOT )?TAKEN BACK"
    r"|NO ROUND|NOT ON)\b"
)
"""What a status says of a rollout or a PoP that needs a person."""


def color_of(state: str, verdict: str) -> str:
    """Slack's name of the colour that says how a rollout does; empty if nothing is known yet."""
    return _COLORS.get(state) or _COLORS.get(verdict, "")
