# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.fleet.campaign.advance import step_campaign
from edgetune.report.action import Result, run_step


class StepCampaign(Action):
    """Take the next step of campaigns."""

    def run(self, **parameters: Any) -> Result:
        return run_step(step_campaign, self.config, **parameters)
