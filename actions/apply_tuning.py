# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.change import apply_tuning


class ApplyTuning(Action):
    """Change the hosts of a batch."""

    def run(self, rollout: str, epoch: int, batch: int) -> Result:
        return run_step(
            apply_tuning,
            self.config,
            rollout=rollout,
            epoch=epoch,
            batch=batch,
        )
