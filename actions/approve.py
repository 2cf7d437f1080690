# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.fleet.action import Result, run_step
from edgetune.fleet.campaign.approve import approve


class Approve(Action):
    """Approve what has a digest."""

    def run(self, **parameters: Any) -> Result:
        return run_step(approve, self.config, **parameters)
