# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.check_baseline import check_baseline


class CheckBaseline(Action):
    """Say what the baseline of a rollout permits to see."""

    def run(self, **parameters: Any) -> Result:
        return run_step(check_baseline, self.config, **parameters)
