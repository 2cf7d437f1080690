# SPDX-License-Identifier: Apache-2.0
"""Lift the pauses of a PoP."""

from __future__ import annotations

from edgetune.base.errors import InputError
from edgetune.rollout.context import Context
from edgetune.rollout.gates.pause import (
    CAUSES,
    PauseResult,
    all_pauses,
    causes_text,
    pause_answer,
    save_pause,
    standing_pauses,
)


def resume_pop(context: Context, pop: str, cause: str = "", requested_by: str = "") -> PauseResult:
    """Lift a pause of this cause, or every one of a PoP; a second time changes nothing."""
    if cause and cause not in CAUSES:
        raise InputError("parameter", "cause", f"{cause!r} is none of {', '.join(CAUSES)}")
    standing = standing_pauses(all_pauses(context).get(pop, {}))
    if not standing:
        return pause_answer(context, pop, False, f"{context.inventory.pop(pop).name} is not paused")
    lifted = {own: pause for own, pause in standing.items() if cause in ("", own)}
    for own, pause in lifted.items():
        save_pause(context, pop, own, pause.lifted(requested_by))
    left = {own: pause for own, pause in standing.items() if own not in lifted}
    still = f"{pop} is still paused ({causes_text(left)})" if left else f"{pop} goes on"
    was = f"; it was paused ({causes_text(lifted)})" if lifted else ""
    return pause_answer(context, pop, bool(lifted), still + was)
