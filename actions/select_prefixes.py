# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from st2common.runners.base_action import Action

from edgetune.report.action import Result, run_step
from edgetune.wings.congestion.rounds.steps.push_configuration import push_configuration
from edgetune.wings.congestion.rounds.steps.select_prefixes import select_prefixes


class SelectPrefixes(Action):
    """Take a round as far as to what hosts are to be told, and tell them."""

    def run(self, **parameters: Any) -> Result:
        return run_step(select_prefixes, self.config, then=[push_configuration], **parameters)
