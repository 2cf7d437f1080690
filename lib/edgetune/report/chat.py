# SPDX-License-Identifier: Apache-2.0
"""What people read in chat: as much of a text as one message holds, and a colour."""

from __future__ import annotations

import html

# hubot-stackstorm cuts at 7,900 characters, be it in the middle of a block of code.
ROOM = 7800

_COLORS = {
    "held": "warning",
    "rolling_back": "danger",
    "rolled_back": "danger",
    "improved": "good",
    "degraded": "danger",
    "inconclusive": "warning",
}


def chat_text(text: str, execution: str = "") -> str:
    """Whole lines from the beginning of a text, at most ``ROOM`` characters once escaped.

    The last line then says how many are left out, and how to read them in the ``execution``.
    """
    if _length(text) <= ROOM:
        return text
    lines = text.split("\n")
    kept = 0
    while _length(_cut(lines, kept + 1, execution)) <= ROOM:
        kept += 1
    return _cut(lines, kept, execution)


def color_of(state: str, verdict: str) -> str:
    """Slack's name of the colour that says how a rollout does; empty if nothing is known yet."""
    return _COLORS.get(state) or _COLORS.get(verdict, "")


def _cut(lines: list[str], kept: int, execution: str) -> str:
    where = f": st2 execution get {execution}" if execution else ""
    return "\n".join([*lines[:kept], f"... {len(lines) - kept} lines more{where}"])


def _length(text: str) -> int:
    """As the aliases escape it."""
    return len(html.escape(text, quote=False))
