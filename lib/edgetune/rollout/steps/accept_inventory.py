# SPDX-License-Identifier: Apache-2.0
"""Take the inventory as its source tells it now, also where many hosts are gone."""

from __future__ import annotations

from edgetune.rollout.context import Context
from edgetune.rollout.record.kept_inventory import accept
from edgetune.rollout.steps.diff_inventory import InventoryResult, counted, told


def accept_inventory(context: Context, pop: str | None = None) -> InventoryResult:
    """Keep what the source tells of a PoP, or of all: the next plans are compared with that.

    A rollout under way keeps the hosts that it was planned with. InputError where the source does
    not tell.
    """
    found, changes = accept(context, pop or "")
    differed = counted(changes)
    return told(context, found, changes, f"kept; {differed}" if differed else "kept as it was")
