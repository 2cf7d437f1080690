# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.report.steps.report_campaign import report_campaign


class ReportCampaign(Action):
    """Write the report of a campaign."""

    def run(self, **parameters: Any) -> Result:
        return run_step(report_campaign, self.config, **parameters)
