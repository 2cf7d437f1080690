# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.sampling import sample_hosts


class SampleHosts(Action):
    """Sample every host of a PoP."""

    def run(self, pop: str = "", rollout: str = "", epoch: int = 0) -> Result:
        return run_step(sample_hosts, self.config, pop=pop, rollout=rollout, epoch=epoch)
