# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.reboot_hosts import reboot_hosts


class RebootHosts(Action):
    """Reboot the hosts of a batch."""

    def run(self, **parameters: Any) -> Result:
        return run_step(reboot_hosts, self.config, **parameters)
