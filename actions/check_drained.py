# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.check_drained import check_drained


class CheckDrained(Action):
    """See who of a batch carries no session any more."""

    def run(self, **parameters: Any) -> Result:
        return run_step(check_drained, self.config, **parameters)
