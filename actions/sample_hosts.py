# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.sample_hosts import sample_hosts


class SampleHosts(Action):
    """Sample every host of a PoP."""

    def run(self, **parameters: Any) -> Result:
        return run_step(sample_hosts, self.config, **parameters)
