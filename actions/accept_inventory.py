# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.accept_inventory import accept_inventory


class AcceptInventory(Action):
    """Take the inventory as its source tells it now."""

    def run(self, **parameters: Any) -> Result:
        return run_step(accept_inventory, self.config, **parameters)
