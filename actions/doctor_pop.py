# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.doctor import doctor_pop


class DoctorPop(Action):
    """Say what speaks against a rollout on a PoP."""

    def run(self, pop: str, tuning: str = "") -> Result:
        return run_step(
            doctor_pop,
            self.config,
            pop=pop,
            tuning=tuning,
        )
