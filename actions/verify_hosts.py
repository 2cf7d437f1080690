# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.undrain_hosts import undrain_hosts
from edgetune.rollout.steps.verify_hosts import verify_hosts


class VerifyHosts(Action):
    """Prove that the hosts of a batch are as they should be."""

    def run(self, **parameters: Any) -> Result:
        return run_step(verify_hosts, self.config, then=(undrain_hosts,), **parameters)
