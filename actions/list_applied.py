# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.list_applied import list_applied


class ListApplied(Action):
    """Say by which rollouts a tuning stands on a PoP."""

    def run(self, **parameters: Any) -> Result:
        return run_step(list_applied, self.config, **parameters)
