# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.fleet.campaign.control import abort_campaign
from edgetune.report.action import Result, run_step


class AbortCampaign(Action):
    """Abort a campaign."""

    def run(self, **parameters: Any) -> Result:
        return run_step(abort_campaign, self.config, **parameters)
