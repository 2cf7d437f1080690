# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.resume_all import resume_all


class ResumeAll(Action):
    """Permit changes again."""

    def run(self, **parameters: Any) -> Result:
        return run_step(resume_all, self.config, **parameters)
