# SPDX-License-Identifier: Apache-2.0
"""Say on which PoPs the congestion control is tuned."""

from __future__ import annotations

from typing import TypedDict

from edgetune.rollout.context import Context
from edgetune.rounds.work import entry_of, tuned_pops


class FoundResult(TypedDict):
    """The names of the PoPs."""

    pops: list[str]
    message: str


def find_tuned_pops(context: Context, pop: str = "") -> FoundResult:
    """The PoP that is named, or all that the inventory has an entry ``congestion`` for."""
    if pop:
        entry_of(context.inventory.pop(pop))
        return {"pops": [pop], "message": f"{pop} is tuned"}
    pops = [*tuned_pops(context)]
    message = f"{len(pops)} PoPs are tuned" if pops else "no PoP has congestion: in the inventory"
    return {"pops": pops, "message": message}
