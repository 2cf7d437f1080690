# SPDX-License-Identifier: Apache-2.0
"""Pause a PoP."""

from __future__ import annotations

from edgetune.base import clock
from edgetune.base.errors import InputError
from edgetune.rollout.context import Context
from edgetune.rollout.gates import pause as gate
from edgetune.rollout.gates.pause import PauseResult


def pause_pop(
    context: Context, pop: str, cause: str = "asked", reason: str = "", requested_by: str = ""
) -> PauseResult:
    """Let nothing more begin on a PoP for this cause; a second time changes nothing."""
    if cause not in gate.ASKABLE:
        raise InputError("parameter", "cause", f"{cause!r} is none of {', '.join(gate.ASKABLE)}")
    name = context.known_inventory.pop(pop).name
    standing = gate.standing_pauses(gate.pauses_of(context, name))
    if cause in standing:
        return gate.pause_answer(
            context, name, False, f"{name} is paused already ({gate.causes_text(standing)})"
        )
    gate.save_pause(context, name, cause, gate.Pause(True, clock.wall(), requested_by, reason))
    why = gate.causes_text({cause: gate.Pause(True, 0, requested_by, reason)})
    return gate.pause_answer(
        context, name, True, f"{name} is paused ({why}); no further batch begins there"
    )
