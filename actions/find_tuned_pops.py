# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.wings.congestion.rounds.steps.find_tuned_pops import find_tuned_pops


class FindTunedPops(Action):
    """Say on which PoPs the congestion control is tuned."""

    def run(self, **parameters: Any) -> Result:
        return run_step(find_tuned_pops, self.config, **parameters)
