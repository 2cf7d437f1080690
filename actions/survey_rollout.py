# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.recovery import survey_rollout


class SurveyRollout(Action):
    """Compare a rollout under way with the world."""

    def run(self, rollout: str, epoch: int, ended: str = "", by: str = "") -> Result:
        return run_step(
            survey_rollout, self.config, rollout=rollout, epoch=epoch, ended=ended, by=by
        )
