# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.fleet.export.state import export_metrics
from edgetune.report.action import Result, run_step


class ExportMetrics(Action):
    """Write the state of edgetune for Prometheus."""

    def run(self) -> Result:
        return run_step(export_metrics, self.config, periodic=True)
