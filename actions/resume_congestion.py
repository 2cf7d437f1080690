# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.wings.congestion.rounds.steps.resume_congestion import resume_congestion


class ResumeCongestion(Action):
    """Let rounds go on after a rollback."""

    def run(self, **parameters: Any) -> Result:
        return run_step(resume_congestion, self.config, **parameters)
