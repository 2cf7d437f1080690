# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.looks import check_health


class CheckHealth(Action):
    """Hold changed hosts against stated limits."""

    def run(self, rollout: str, epoch: int, batch: int) -> Result:
        return run_step(
            check_health,
            self.config,
            rollout=rollout,
            epoch=epoch,
            batch=batch,
        )
