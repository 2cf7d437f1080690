# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.wings.congestion.rounds.steps.roll_back_congestion import roll_back_congestion


class RollBackCongestion(Action):
    """Take the congestion control of a PoP back on every host."""

    def run(self, **parameters: Any) -> Result:
        return run_step(roll_back_congestion, self.config, **parameters)
