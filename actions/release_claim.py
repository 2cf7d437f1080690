# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.action import Result, run_step
from edgetune.rollout.steps.release_claim import release_claim


class ReleaseClaim(Action):
    """Give a PoP back."""

    def run(self, **parameters: Any) -> Result:
        return run_step(release_claim, self.config, **parameters)
