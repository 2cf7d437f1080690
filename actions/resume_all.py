# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.switch import resume_all


class ResumeAll(Action):
    """Permit changes again."""

    def run(self, by: str = "") -> Result:
        return run_step(resume_all, self.config, by=by)
