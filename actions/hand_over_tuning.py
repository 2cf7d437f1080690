# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.hand_over_tuning import hand_over_tuning


class HandOverTuning(Action):
    """Leave the effect of a tuning to the people of its PoP."""

    def run(self, **parameters: Any) -> Result:
        return run_step(hand_over_tuning, self.config, **parameters)
