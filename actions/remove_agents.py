# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.remove_agents import remove_agents


class RemoveAgents(Action):
    """Remove everything of edgetune from the hosts of a PoP."""

    def run(self, **parameters: Any) -> Result:
        return run_step(remove_agents, self.config, **parameters)
