# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.adopt_host import adopt_host


class AdoptHost(Action):
    """Accept a replaced machine as it is."""

    def run(self, **parameters: Any) -> Result:
        return run_step(adopt_host, self.config, **parameters)
