# SPDX-License-Identifier: Apache-2.0
"""Which rollouts are taken back when a tuning is retired from a PoP."""

from __future__ import annotations

from typing import TypedDict

from edgetune.base.errors import InputError, RefusedError
from edgetune.rollout.context import Context
from edgetune.rollout.record.heads import (
    read_all_heads,
    refuse_lost_past,
    refuse_unfinished,
)


class AppliedResult(TypedDict):
    """Ids of rollouts, newest first."""

    rollouts: list[str]
    message: str


def list_applied(
    context: Context, pop: str, tuning: str = "", every: bool = False
) -> AppliedResult:
    """The complete rollouts of a tuning on a PoP, newest first; with ``every`` those of all.

    Touches nothing. There are none, and the message says why, while any rollout is under way
    there: it holds the PoP; and while one of the archive cannot be read.
    """
    context.known_inventory.pop(pop)
    if bool(tuning) == every:
        # No name is not to mean all: what is found is taken back.
        raise InputError("parameter", "tuning", "name one, or give every instead")
    try:
        refuse_unfinished(context, pop)
        own, unreadable = read_all_heads(context, pop)
        refuse_lost_past(context, unreadable)
    except RefusedError as why:
        return {"rollouts": [], "message": str(why)}
    heads = [head for head in own if head.state == "complete"]
    told = [head.handed_over for head in own if head.tuning == tuning and head.handed_over]
    ids = [head.id for head in reversed(heads) if head.tuning == (tuning or head.tuning)]
    if every:
        found = [f"{head.tuning} by {head.id}" for head in reversed(heads)]
        stand = f"there stand on {pop}: {', '.join(found)}" if found else "nothing stands there"
        return {"rollouts": ids, "message": stand}
    if not ids and told:
        return {"rollouts": [], "message": told[-1]}
    if not ids:
        known = ", ".join(sorted({head.tuning for head in heads})) or "none"
        return {"rollouts": [], "message": f"{tuning} does not stand on {pop}; there are: {known}"}
    return {"rollouts": ids, "message": f"{tuning} stands on {pop} by {', '.join(ids)}"}
