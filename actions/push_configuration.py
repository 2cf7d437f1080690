# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.wings.congestion.rounds.steps.push_configuration import push_configuration


class PushConfiguration(Action):
    """Tell the hosts of a PoP what the round came to."""

    def run(self, **parameters: Any) -> Result:
        return run_step(push_configuration, self.config, **parameters)
