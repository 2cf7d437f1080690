# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.read_capacity import read_capacity


class ReadCapacity(Action):
    """Read what a pair of hosts shows at its present weight."""

    def run(self, **parameters: Any) -> Result:
        return run_step(read_capacity, self.config, **parameters)
