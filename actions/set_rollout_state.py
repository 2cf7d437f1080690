# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.set_rollout_state import set_rollout_state


class SetRolloutState(Action):
    """Move a rollout into its next state."""

    def run(self, **parameters: Any) -> Result:
        return run_step(set_rollout_state, self.config, **parameters)
