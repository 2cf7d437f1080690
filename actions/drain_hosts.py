# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.drain_hosts import drain_hosts


class DrainHosts(Action):
    """Take the hosts of a batch out of traffic, or begin to."""

    def run(self, **parameters: Any) -> Result:
        return run_step(drain_hosts, self.config, **parameters)
