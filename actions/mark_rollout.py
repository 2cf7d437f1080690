# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.lifecycle import mark_rollout


class MarkRollout(Action):
    """Move a rollout into its next state."""

    def run(
        self,
        rollout: str,
        epoch: int,
        state: str,
        owner: str = "",
        by: str = "",
        reason: str = "",
        hosts: list[str] | None = None,
    ) -> Result:
        return run_step(
            mark_rollout,
            self.config,
            rollout=rollout,
            epoch=epoch,
            state=state,
            owner=owner,
            by=by,
            reason=reason,
            hosts=hosts,
        )
