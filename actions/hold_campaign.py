# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.campaign.control import hold_campaign
from edgetune.entry import Result, run_step


class HoldCampaign(Action):
    """Hold a campaign."""

    def run(self, campaign: str, reason: str = "", by: str = "") -> Result:
        return run_step(hold_campaign, self.config, campaign=campaign, reason=reason, by=by)
