# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from st2common.runners.base_action import Action

from edgetune.entry import Result, run_step
from edgetune.rollout.planning import plan_rollout


class PlanRollout(Action):
    """Say what a tuning would do to a PoP."""

    def run(
        self,
        pop: str = "",
        tuning: str = "",
        plan: str = "",
        exclude: list[str] | None = None,
        fraction: float = 0.5,
        batch_size: int = 0,
        baseline: float = 86400,
        soak: float = 86400,
        interval: int = 60,
        warmup: float = 300,
        looks: int = 12,
        alpha_help: float = 0.05,
        alpha_harm: float = 0.05,
        seed: int = 0,
        force: bool = False,
        force_restart: bool = False,
        without_packets: bool = False,
    ) -> Result:
        return run_step(
            plan_rollout,
            self.config,
            pop=pop,
            tuning=tuning,
            plan=plan,
            exclude=exclude,
            fraction=fraction,
            batch_size=batch_size,
            baseline=baseline,
            soak=soak,
            interval=interval,
            warmup=warmup,
            looks=looks,
            alpha_help=alpha_help,
            alpha_harm=alpha_harm,
            seed=seed,
            force=force,
            force_restart=force_restart,
            without_packets=without_packets,
        )
