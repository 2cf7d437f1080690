# SPDX-License-Identifier: Apache-2.0
"""Pause a PoP."""

from __future__ import annotations

from edgetune.base import clock
from edgetune.base.errors import InputError
from edgetune.rollout.context import Context
from edgetune.rollout.gates.pause import (
    ASKABLE,
    Pause,
    PauseResult,
    causes_text,
    pause_answer,
    pauses_of,
    save_pause,
    standing_pauses,
)


def pause_pop(
    context: Context, pop: str, cause: str = "asked", reason: str = "", requested_by: str = ""
) -> PauseResult:
    """Let nothing more begin on a PoP for this cause; a second time changes nothing."""
    if cause not in ASKABLE:
        raise InputError("parameter", "cause", f"{cause!r} is none of {', '.join(ASKABLE)}")
    name = context.known_inventory.pop(pop).name
    standing = standing_pauses(pauses_of(context, name))
    if cause in standing:
        return pause_answer(
            context, name, False, f"{name} is paused already ({causes_text(standing)})"
        )
    save_pause(context, name, cause, Pause(True, clock.wall(), requested_by, reason))
    why = causes_text({cause: Pause(True, 0, requested_by, reason)})
    return pause_answer(
        context, name, True, f"{name} is paused ({why}); no further batch begins there"
    )
