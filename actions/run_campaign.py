# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.report.steps.run_campaign import run_campaign


class RunCampaign(Action):
    """Begin a campaign, or show it."""

    def run(self, **parameters: Any) -> Result:
        return run_step(run_campaign, self.config, **parameters)
