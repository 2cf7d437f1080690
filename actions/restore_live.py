# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.restore_live import restore_live


class RestoreLive(Action):
    """Take back what the hosts of a batch can while they serve."""

    def run(self, **parameters: Any) -> Result:
        return run_step(restore_live, self.config, **parameters)
