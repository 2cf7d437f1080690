# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.diagnose_hosts import diagnose_hosts


class DiagnoseHosts(Action):
    """Say what is wrong with the hosts of a PoP."""

    def run(self, **parameters: Any) -> Result:
        return run_step(diagnose_hosts, self.config, **parameters)
