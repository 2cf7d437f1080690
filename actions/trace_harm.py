# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.report.steps.trace_harm import trace_harm


class TraceHarm(Action):
    """Show which change made PoPs worse after it was promoted."""

    def run(self, **parameters: Any) -> Result:
        return run_step(trace_harm, self.config, **parameters)
