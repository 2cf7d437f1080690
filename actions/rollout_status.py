# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.report.steps.rollout_status import rollout_status


class RolloutStatus(Action):
    """Say how rollouts stand."""

    def run(self, **parameters: Any) -> Result:
        return run_step(rollout_status, self.config, **parameters)
