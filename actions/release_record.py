# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.unreadable import release_record


class ReleaseRecord(Action):
    """Give up a record that cannot be read."""

    def run(self, rollout: str, reason: str = "", by: str = "") -> Result:
        return run_step(release_record, self.config, rollout=rollout, reason=reason, by=by)
