# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.shift_weights import shift_weights


class ShiftWeights(Action):
    """Send a pair of hosts more of their PoP's traffic."""

    def run(self, **parameters: Any) -> Result:
        return run_step(shift_weights, self.config, **parameters)
