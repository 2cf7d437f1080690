# SPDX-License-Identifier: Apache-2.0
"""Find what an execution left unfinished."""

from __future__ import annotations

from typing import TypedDict

from edgetune.rollout.context import Context
from edgetune.rollout.record.heads import living_heads


class LeftResult(TypedDict):
    """The rollout that was left, or an empty text."""

    rollout: str
    message: str


def find_left(context: Context, execution: str) -> LeftResult:
    """The rollout that an execution carried on last and did not finish; changes nothing.

    ``rollout`` is its id, or empty where that execution left nothing. Where a recovery
    ended badly, too, ``recover_orphans`` tries again after ``owner_timeout``.
    """
    heads = [
        head
        for head in living_heads(context)
        if (head.owner == execution and head.wants_a_workflow) or head.is_measured_by(execution)
    ]
    if not heads or not execution:
        return {"rollout": "", "message": "that execution left nothing to carry on"}
    left = heads[-1]
    if left.recoveries and left.wants_a_workflow:
        again = "was recovered already, and is again after owner_timeout"
        return {"rollout": "", "message": f"rollout {left.id} {again}"}
    return {"rollout": left.id, "message": f"rollout {left.id} was left {left.state}"}
