# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.doctor_pop import doctor_pop


class DoctorPop(Action):
    """Say what speaks against a rollout on a PoP."""

    def run(self, **parameters: Any) -> Result:
        return run_step(doctor_pop, self.config, diagnoses=True, **parameters)
