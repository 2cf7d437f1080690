# SPDX-License-Identifier: Apache-2.0
"""Show the newest verdict on a rollout."""

from __future__ import annotations

from typing import TypedDict

from edgetune.report.capacity import capacity_if_read
from edgetune.report.headline import color_of
from edgetune.report.results import sent_more_text
from edgetune.report.text import capacity_line, verdict_text
from edgetune.rollout.context import Context
from edgetune.rollout.record.rollout import read_rollout


class VerdictResult(TypedDict):
    """The newest verdict of a rollout, and the colour in chat that says how it does."""

    rollout: str
    verdict: str
    color: str
    message: str
    text: str


def show_verdict(context: Context, rollout: str) -> VerdictResult:
    """The verdict of a rollout's newest look with its numbers, and what was measured of the load
    that its hosts carry, or why that cannot be read; takes no look, changes nothing.

    InputError if there is no such rollout, RefusedError if its look cannot be read.
    """
    opened = read_rollout(context, rollout)
    head = opened.head
    told = f"{head.id}  {head.tuning} on {head.pop}: {head.state}"
    shown = "No look was taken yet."
    if head.looks:
        shown = verdict_text(opened.look(head.looks - 1), opened.plan)
    missing: list[str] = []
    measured = capacity_if_read(context, head.id, missing)
    more = [capacity_line(sent_more_text(measured))] if measured else missing
    verdict = head.verdict.verdict.value if head.verdict else ""
    return {
        "rollout": head.id,
        "verdict": verdict,
        "color": color_of(head.state, verdict),
        "message": f"{told}, {verdict or 'without a verdict'}",
        "text": "\n".join([told, shown, *more]),
    }
