# SPDX-License-Identifier: Apache-2.0
"""Say on which PoPs the congestion control is tuned."""

from __future__ import annotations

from typing import TypedDict

from edgetune.base.documents.rounds import decisions_key, epoch_of
from edgetune.rollout.context import Context
from edgetune.wings.congestion.rounds.work import entry_of, tuned_pops

MOST = 100
"""PoPs of one workflow: StackStorm's engine takes more time for each of many items."""


class FoundResult(TypedDict):
    """The names of the PoPs, first those that waited longest for a round."""

    pops: list[str]
    message: str


def find_tuned_pops(context: Context, pop: str | None = None) -> FoundResult:
    """The PoP that is named, or those that the inventory has an entry ``congestion`` for.

    Of many, those come first that waited longest: the others have their turn the next time.
    """
    if pop:
        entry_of(context.inventory.pop(pop))
        return {"pops": [pop], "message": f"{pop} is tuned"}
    pops = tuned_pops(context)
    texts = context.store.list(decisions_key(""))
    # An epoch is at least the number of the round in which it was taken.
    last = {name: epoch_of(texts.get(decisions_key(name), "")) for name in pops}
    turn = sorted(pops, key=lambda name: last[name])[:MOST]
    message = (
        f"PoPs that are tuned: {len(pops)}" if pops else "no PoP has congestion: in the inventory"
    )
    later = f", {len(pops) - MOST} of them the next time" if len(pops) > MOST else ""
    return {"pops": turn, "message": f"{message}{later}"}
