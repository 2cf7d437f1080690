# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.release_record import release_record


class ReleaseRecord(Action):
    """Give up a record that cannot be read."""

    def run(self, **parameters: Any) -> Result:
        return run_step(release_record, self.config, **parameters)
