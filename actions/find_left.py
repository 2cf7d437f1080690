# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.find_left import find_left


class FindLeft(Action):
    """Find what an execution left unfinished."""

    def run(self, **parameters: Any) -> Result:
        return run_step(find_left, self.config, True, **parameters)
