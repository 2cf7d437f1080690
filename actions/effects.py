# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.report.steps.effects import effects


class Effects(Action):
    """Show what tunings did, and what is to be expected of the next PoP."""

    def run(self, **parameters: Any) -> Result:
        return run_step(effects, self.config, **parameters)
