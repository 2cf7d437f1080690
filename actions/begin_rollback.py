# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.begin_rollback import begin_rollback


class BeginRollback(Action):
    """Begin to take a rollout back."""

    def run(self, **parameters: Any) -> Result:
        return run_step(begin_rollback, self.config, **parameters)
