# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.write_textfiles import write_textfiles


class WriteTextfiles(Action):
    """Have hosts tell Prometheus their boots, and the tunings that stand on them."""

    def run(self, **parameters: Any) -> Result:
        return run_step(write_textfiles, self.config, **parameters)
