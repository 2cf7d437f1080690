# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.lifecycle import claim_pop


class ClaimPop(Action):
    """Take a PoP for a rollout."""

    def run(
        self,
        plan: str = "",
        rollout: str = "",
        left_by: str = "",
        epoch: int = 0,
        owner: str = "",
        by: str = "",
        wait: bool = False,
        carry_on: bool = False,
        orphaned: bool = False,
        channel: str = "",
        asked_by: str = "",
    ) -> Result:
        return run_step(
            claim_pop,
            self.config,
            periodic=bool(left_by),
            plan=plan,
            rollout=rollout,
            left_by=left_by,
            epoch=epoch,
            owner=owner,
            by=by,
            wait=wait,
            carry_on=carry_on,
            orphaned=orphaned,
            channel=channel,
            asked_by=asked_by,
        )
