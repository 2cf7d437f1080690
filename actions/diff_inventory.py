# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.diff_inventory import diff_inventory


class DiffInventory(Action):
    """Say how the inventory differs from what was kept of it."""

    def run(self, **parameters: Any) -> Result:
        return run_step(diff_inventory, self.config, **parameters)
