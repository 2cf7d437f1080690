# SPDX-License-Identifier: Apache-2.0
"""Stop everything."""

from __future__ import annotations

from typing import TypedDict

from edgetune.base.sanitize import command
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.kill_switch import STOP_KEY, take_permit_away


class StoppedResult(TypedDict):
    """Whether everything is stopped now."""

    stopped: bool
    message: str


def stop_all(context: Context, requested_by: str = "", reason: str = "") -> StoppedResult:
    """Let nothing be changed any more, on any PoP, until ``resume_all``."""
    why = f"stopped by {requested_by or 'unknown'}" + (f": {reason}" if reason else "")
    context.store.put(STOP_KEY, why)
    take_permit_away(context, why)
    message = f"{why}; hosts stay as they are until {command('resume_all')}"
    return {"stopped": True, "message": message}
