# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.baseline import check_baseline


class CheckBaseline(Action):
    """Say what the baseline of a rollout permits to see."""

    def run(self, rollout: str, epoch: int) -> Result:
        return run_step(
            check_baseline,
            self.config,
            rollout=rollout,
            epoch=epoch,
        )
