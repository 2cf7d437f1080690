# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.fleet.campaign.control import hold_campaign
from edgetune.report.action import Result, run_step


class HoldCampaign(Action):
    """Hold a campaign."""

    def run(self, **parameters: Any) -> Result:
        return run_step(hold_campaign, self.config, **parameters)
