# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.status import rollout_status


class RolloutStatus(Action):
    """Say how rollouts stand."""

    def run(
        self,
        rollout: str = "",
        pop: str = "",
        state: str = "",
        host: str = "",
        orphaned: bool = False,
        verdict: bool = False,
        ended: list[str] | None = None,
        periodic: bool = False,
    ) -> Result:
        return run_step(
            rollout_status,
            self.config,
            rollout=rollout,
            pop=pop,
            state=state,
            host=host,
            orphaned=orphaned,
            verdict=verdict,
            ended=ended,
            periodic=periodic,
        )
