# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.campaign.approve import approve
from edgetune.entry import Result, run_step


class Approve(Action):
    """Approve what has a digest."""

    def run(self, digest: str, reason: str = "", by: str = "") -> Result:
        return run_step(approve, self.config, digest=digest, reason=reason, by=by)
