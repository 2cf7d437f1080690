# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.watch_drift import watch_drift


class WatchDrift(Action):
    """See whether hosts are still as complete rollouts left them."""

    def run(self) -> Result:
        return run_step(watch_drift, self.config, periodic=True)
