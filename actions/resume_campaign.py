# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.fleet.action import Result, run_step
from edgetune.fleet.campaign.control import resume_campaign


class ResumeCampaign(Action):
    """Resume a campaign."""

    def run(self, **parameters: Any) -> Result:
        return run_step(resume_campaign, self.config, **parameters)
