# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.check_rebooted import check_rebooted
from edgetune.rollout.steps.undrain_hosts import undrain_hosts
from edgetune.rollout.steps.verify_hosts import verify_hosts


class CheckRebooted(Action):
    """See who of a batch is back from its reboot."""

    def run(self, **parameters: Any) -> Result:
        return run_step(
            check_rebooted, self.config, then=(verify_hosts, undrain_hosts), **parameters
        )
