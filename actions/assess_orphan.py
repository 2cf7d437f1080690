# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.assess_orphan import assess_orphan


class AssessOrphan(Action):
    """Compare a rollout under way with the world."""

    def run(self, **parameters: Any) -> Result:
        return run_step(assess_orphan, self.config, **parameters)
