# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.check_health import check_health


class CheckHealth(Action):
    """Hold changed hosts against stated limits."""

    def run(self, **parameters: Any) -> Result:
        return run_step(check_health, self.config, **parameters)
