# SPDX-License-Identifier: Apache-2.0
"""Permit changes again after a stop."""

from __future__ import annotations

import secrets

from edgetune.base.errors import RefusedError
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.kill_switch import STOP_KEY, keep_permit, stopped_by
from edgetune.rollout.steps.stop_all import StoppedResult

_TRIES = 3


def resume_all(context: Context, requested_by: str = "") -> StoppedResult:
    """Permit changes again; what was stopped is carried on by ``recover_orphans``.

    RefusedError if somebody stops everything at the same moment.
    """
    was = stopped_by(context)
    if not was:
        return {"stopped": False, "message": "nothing was stopped"}
    for _ in range(_TRIES):
        # A step that read the keys just before this may take the permit away once.
        permit = f"resumed by {requested_by or 'unknown'}, permit {secrets.token_hex(8)}"
        keep_permit(context, permit, "")
        context.store.put(STOP_KEY, permit)
        if not stopped_by(context):
            message = f"{requested_by or 'unknown'} permits changes again ({was})"
            return {"stopped": False, "message": message}
    raise RefusedError(f"everything was stopped again at once ({stopped_by(context)})")
