# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.wings.congestion.rounds.steps.congestion_report import congestion_report


class CongestionReport(Action):
    """Say how the congestion control of PoPs stands."""

    def run(self, **parameters: Any) -> Result:
        return run_step(congestion_report, self.config, **parameters)
