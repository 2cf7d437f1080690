# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.claim_pop import claim_pop


class ClaimPop(Action):
    """Take a PoP for the rollout of a plan."""

    def run(self, **parameters: Any) -> Result:
        return run_step(claim_pop, self.config, **parameters)
