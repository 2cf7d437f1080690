# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.plan_rollout import plan_rollout


class PlanRollout(Action):
    """Say what a tuning would do to a PoP."""

    def run(self, **parameters: Any) -> Result:
        return run_step(plan_rollout, self.config, **parameters)
