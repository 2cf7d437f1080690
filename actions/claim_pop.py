# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.steps.claim_pop import claim_pop


class ClaimPop(Action):
    """Take a PoP for a rollout."""

    def run(self, **parameters: Any) -> Result:
        by_timer = bool(parameters.get("left_by"))
        return run_step(claim_pop, self.config, by_timer, **parameters)
