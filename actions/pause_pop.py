# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.pause_pop import pause_pop


class PausePop(Action):
    """Pause a PoP."""

    def run(self, **parameters: Any) -> Result:
        return run_step(pause_pop, self.config, **parameters)
