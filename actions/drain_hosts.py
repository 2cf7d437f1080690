# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.drain import drain_hosts


class DrainHosts(Action):
    """Take the hosts of a batch out of traffic, or begin to."""

    def run(self, rollout: str, epoch: int, batch: int) -> Result:
        return run_step(
            drain_hosts,
            self.config,
            rollout=rollout,
            epoch=epoch,
            batch=batch,
        )
