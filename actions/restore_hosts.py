# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.change import restore_hosts


class RestoreHosts(Action):
    """Take a tuning back on the hosts of a batch."""

    def run(self, rollout: str, epoch: int, batch: int, live: bool = False) -> Result:
        return run_step(
            restore_hosts,
            self.config,
            rollout=rollout,
            epoch=epoch,
            batch=batch,
            live=live,
        )
