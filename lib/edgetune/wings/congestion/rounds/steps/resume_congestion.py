# SPDX-License-Identifier: Apache-2.0
"""Let the congestion control of a PoP's clients be tuned again."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.rounds import ROLLED_BACK, TUNING
from edgetune.base.errors import InputError
from edgetune.rollout.context import Context
from edgetune.wings.congestion.rounds.work import entry_of, seized


class ResumedResult(TypedDict):
    """Whether it was rolled back; the chat ``channel`` that is told if so."""

    pop: str
    changed: bool
    message: str
    channel: str


def resume_congestion(
    context: Context, pop: str, reason: str = "", requested_by: str = ""
) -> ResumedResult:
    """Let rounds go on after a rollback; what was chosen before is chosen anew, a few a round.

    The hold-out is drawn as before. InputError without a name: somebody decides it.
    """
    entry = entry_of(context.inventory.pop(pop))
    if not requested_by:
        raise InputError("parameter", "requested_by", "is missing: somebody lets it go on")
    with seized(context, pop) as work:
        decisions = work.decisions
        if decisions.state != ROLLED_BACK:
            message = f"{pop} is not rolled back"
            return {"pop": pop, "changed": False, "message": message, "channel": ""}
        was = decisions.reason
        decisions.become(TUNING, reason, requested_by)
        decisions.pending, decisions.windows_off = [], ""
        # Who took it back may have died before that stood here, and it would be renewed.
        work.rounds.hold(None, clock.wall())
        work.rounds.wanted = None
        if work.rounds.selection:
            selection = work.selection(entry.thresholds)
            work.rounds.selection = replace(selection, chosen=()).text()
        work.save()
    why = f": {reason}" if reason else ""
    message = f"{pop} is tuned again, as {requested_by} says{why}; it was: {was}"
    return {"pop": pop, "changed": True, "message": message, "channel": context.config.chat_channel}
