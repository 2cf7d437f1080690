# SPDX-License-Identifier: Apache-2.0
"""Lift the pauses of a PoP."""

from __future__ import annotations

from edgetune.base.errors import InputError
from edgetune.rollout.context import Context
from edgetune.rollout.gates import pause as gate
from edgetune.rollout.gates.pause import PauseResult

_LIFTED_BY_HAND = (*gate.ASKABLE, gate.PLANNED)


def resume_pop(context: Context, pop: str, cause: str = "", requested_by: str = "") -> PauseResult:
    """Lift a pause of this cause, or every one of a PoP; a second time changes nothing.

    That of an execution which is paused in StackStorm is lifted there: the answer says how.
    """
    if cause and cause not in _LIFTED_BY_HAND:
        known = ", ".join(_LIFTED_BY_HAND)
        raise InputError("parameter", "cause", f"{cause!r} is none of {known}")
    standing = gate.standing_pauses(gate.all_pauses(context).get(pop, {}))
    if not standing:
        return gate.pause_answer(
            context, pop, False, f"{context.known_inventory.pop(pop).name} is not paused"
        )
    causes = [cause] if cause else _LIFTED_BY_HAND
    lifted = {own: pause for own, pause in standing.items() if own in causes}
    for own, pause in lifted.items():
        gate.save_pause(context, pop, own, pause.lifted(requested_by))
    left = {own: pause for own, pause in standing.items() if own not in lifted}
    goes_on = f"{pop} goes on ({requested_by or 'unknown'})"
    still = f"{pop} is still paused ({gate.causes_text(left)})" if left else goes_on
    still += f"; {gate.ways_on(pop, left)[-1]} lets it go on" if gate.EXECUTION in left else ""
    was = f"; it was paused ({gate.causes_text(lifted)})" if lifted else ""
    return gate.pause_answer(context, pop, bool(lifted), still + was)
