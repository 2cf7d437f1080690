# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.report.steps.show_verdict import show_verdict


class ShowVerdict(Action):
    """Show the newest verdict on a rollout."""

    def run(self, **parameters: Any) -> Result:
        return run_step(show_verdict, self.config, **parameters)
