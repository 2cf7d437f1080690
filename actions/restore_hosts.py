# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.action import Result, run_step
from edgetune.rollout.steps.restore_hosts import restore_hosts


class RestoreHosts(Action):
    """Take a tuning back on the hosts of a batch."""

    def run(self, **parameters: Any) -> Result:
        return run_step(restore_hosts, self.config, **parameters)
