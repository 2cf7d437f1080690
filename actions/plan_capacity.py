# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.plan_capacity import plan_capacity


class PlanCapacity(Action):
    """Plan how to measure what tuned hosts carry beside untuned ones."""

    def run(self, **parameters: Any) -> Result:
        return run_step(plan_capacity, self.config, **parameters)
