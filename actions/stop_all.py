# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.stop_all import stop_all


class StopAll(Action):
    """Stop everything."""

    def run(self, **parameters: Any) -> Result:
        return run_step(stop_all, self.config, **parameters)
