# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.undrain_hosts import undrain_hosts


class UndrainHosts(Action):
    """Bring the hosts of a batch back into traffic."""

    def run(self, **parameters: Any) -> Result:
        return run_step(undrain_hosts, self.config, **parameters)
