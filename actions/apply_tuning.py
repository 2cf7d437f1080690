# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.undrain_hosts import undrain_hosts
from edgetune.rollout.steps.verify_hosts import verify_hosts


class ApplyTuning(Action):
    """Change the hosts of a batch."""

    def run(self, **parameters: Any) -> Result:
        then = (reboot_hosts, verify_hosts, undrain_hosts)
        return run_step(apply_tuning, self.config, then=then, **parameters)
