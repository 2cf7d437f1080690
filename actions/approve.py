# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.fleet.campaign.control import approve
from edgetune.report.action import Result, run_step


class Approve(Action):
    """Approve what has a digest."""

    def run(self, **parameters: Any) -> Result:
        return run_step(approve, self.config, **parameters)
