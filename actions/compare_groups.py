# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.compare_groups import compare_groups


class CompareGroups(Action):
    """Compare the two groups of a rollout."""

    def run(self, **parameters: Any) -> Result:
        return run_step(compare_groups, self.config, **parameters)
