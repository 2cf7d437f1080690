# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.report.steps.report_rollout import report_rollout


class ReportRollout(Action):
    """Write the report of a rollout."""

    def run(self, **parameters: Any) -> Result:
        return run_step(report_rollout, self.config, **parameters)
