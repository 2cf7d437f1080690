# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.action import Result, run_step
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.reboot_hosts import reboot_hosts


class ApplyTuning(Action):
    """Change the hosts of a batch."""

    def run(self, **parameters: Any) -> Result:
        return run_step(apply_tuning, self.config, then=(reboot_hosts,), **parameters)
