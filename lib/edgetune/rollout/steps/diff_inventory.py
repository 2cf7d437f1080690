# SPDX-License-Identifier: Apache-2.0
"""Say how the inventory differs from what was read for the last plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.inventory import Differences, PopChange
from edgetune.base.documents.reading import encoded
from edgetune.base.durations import duration
from edgetune.base.names import several
from edgetune.rollout.context import Context
from edgetune.rollout.record.kept_inventory import compared
from edgetune.rollout.store.inventory import kept_inventory
from edgetune.site.inventory import Inventory


class InventoryResult(TypedDict):
    """How PoPs differ, each as ``documents.inventory.PopChange``."""

    pops: list[dict[str, object]]
    message: str
    text: Differences


def diff_inventory(context: Context, pop: str = "") -> InventoryResult:
    """How a PoP, or all, differ from what was kept when a plan was made last; keeps nothing.

    InputError where the source does not tell.
    """
    found, changes = compared(context, pop)
    kept = kept_inventory(context.store)
    if kept is None:
        return told(context, found, changes, "nothing was kept yet")
    differing = counted(changes) or "nothing differs"
    age = duration(round(clock.wall() - kept.read))
    return told(context, found, changes, f"{differing} from what was kept {age} ago")


def counted(changes: Sequence[PopChange]) -> str:
    """Such as ``2 PoPs differ``, or nothing."""
    verb = "differs" if len(changes) == 1 else "differ"
    return f"{several(len(changes), 'PoP')} {verb}" if changes else ""


def told(
    context: Context, found: Inventory, changes: Sequence[PopChange], what: str
) -> InventoryResult:
    """The result about an inventory that was just read."""
    pops = found.pop_names()
    hosts = sum(len(found.pop(name).hosts) for name in pops)
    many = f"{several(len(pops), 'PoP')}, {hosts} hosts"
    message = f"{context.config.inventory_source}: {many}; {what}"
    return {
        "pops": encoded([*changes]),
        "message": message,
        "text": Differences(message, changes),
    }
