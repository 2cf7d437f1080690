# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.take_over_rollout import take_over_rollout


class TakeOverRollout(Action):
    """Take a rollout over under a new epoch."""

    def run(self, **parameters: Any) -> Result:
        return run_step(take_over_rollout, self.config, **parameters)
