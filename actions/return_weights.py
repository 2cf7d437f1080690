# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.rollout.steps.return_weights import return_weights


class ReturnWeights(Action):
    """Return the weights that a pair of hosts was lent."""

    def run(self, **parameters: Any) -> Result:
        return run_step(return_weights, self.config, **parameters)
