# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.switch import stop_all


class StopAll(Action):
    """Stop everything."""

    def run(self, reason: str = "", by: str = "") -> Result:
        return run_step(stop_all, self.config, reason=reason, by=by)
