# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.campaign.run import run_campaign
from edgetune.entry import Result, run_step


class RunCampaign(Action):
    """Begin a campaign, or show it."""

    def run(self, campaign: str, dry_run: bool = True, by: str = "", channel: str = "") -> Result:
        return run_step(
            run_campaign,
            self.config,
            campaign=campaign,
            dry_run=dry_run,
            by=by,
            channel=channel,
        )
