# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.reporting import report_rollout


class ReportRollout(Action):
    """Write the report of a rollout."""

    def run(self, rollout: str) -> Result:
        return run_step(report_rollout, self.config, rollout=rollout)
