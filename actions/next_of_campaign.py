# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.campaign.advance import next_of_campaign
from edgetune.entry import Result, run_step


class NextOfCampaign(Action):
    """Take the next step of campaigns."""

    def run(
        self, campaign: str = "", owner: str = "", by: str = "", periodic: bool = False
    ) -> Result:
        return run_step(
            next_of_campaign,
            self.config,
            campaign=campaign,
            owner=owner,
            by=by,
            periodic=periodic,
        )
