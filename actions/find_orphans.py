# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.find_orphans import find_orphans


class FindOrphans(Action):
    """Find the rollouts that nobody carries on, and end dead executions."""

    def run(self, **parameters: Any) -> Result:
        return run_step(find_orphans, self.config, **parameters)
