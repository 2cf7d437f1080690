# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.sample_running import sample_running


class SampleRunning(Action):
    """Take one sample of every host of PoPs with a rollout."""

    def run(self) -> Result:
        return run_step(sample_running, self.config, periodic=True)
