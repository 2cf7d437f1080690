# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.pause import pause_pop


class PausePop(Action):
    """Pause a PoP."""

    def run(self, pop: str, cause: str = "asked", reason: str = "", by: str = "") -> Result:
        return run_step(pause_pop, self.config, pop=pop, cause=cause, reason=reason, by=by)
