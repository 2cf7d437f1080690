# SPDX-License-Identifier: Apache-2.0
"""What workflows need that the local runner conducts on a world, in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edgetune.base.errors import EdgetuneError
from edgetune.base.sanitize import one_line
from edgetune.report.action import safe, safe_text, signing
from lab.runner import Engine, Execution, Pack
from lab.runner.parameters import final
from tests.support import ROOT
from tests.support.world import EmptyWorld, step_named

STEPS: dict[str, Any] = {
    name: step_named(name)
    for name in (
        *("claim_pop", "take_over_rollout", "take_over_for_rollback", "find_left", "list_applied"),
        *("hand_over_tuning", "remove_agents", "assess_orphan", "set_rollout_state"),
        *("begin_rollback", "drain_hosts", "check_drained", "set_bios", "apply_tuning"),
        *("restore_live", "restore_hosts", "reboot_hosts", "check_rebooted", "verify_hosts"),
        *("undrain_hosts", "check_health"),
        *("plan_capacity", "begin_capacity", "shift_weights", "read_capacity", "return_weights"),
    )
}
"""The steps of the library by the actions that run them."""


class Impatient(threading.Event):
    """No task is delayed; ``delays`` says by how many seconds each would have been.

    ``passes`` is told them, in their turn.
    """

    def __init__(self) -> None:
        super().__init__()
        self.delays: list[float] = []
        self.passes: Callable[[float], object] = lambda seconds: None

    def wait(self, timeout: float | None = None) -> bool:
        if timeout:
            self.delays.append(timeout)
            self.passes(timeout)
        return self.is_set()


class Conductor(Engine):
    """Has the steps done on a world, in this process; ``steps`` are those that were taken."""

    known: Mapping[str, Any] = STEPS

    def __init__(self, world: EmptyWorld, home: Path) -> None:
        super().__init__(Pack(ROOT), world.config, home)
        self.canceled = self.patience = Impatient()
        self.steps: list[str] = []
        self.world = world
        self._one_at_a_time = threading.Lock()

    def request(self, name: str, given: dict[str, Any], **place: Any) -> Execution:
        """As ana asks for it, unless the context tells of somebody else."""
        context = {"user": "ana", **place.pop("context", {})}
        return super().request(name, given, context=context, **place)

    def output(self, workflow: str, **given: Any) -> tuple[str, Any]:
        """How a workflow ended, and what it put out."""
        done = self.run(workflow, given)
        return done.status, done.payload

    def roll(self, batch: int, workflow: str = "roll_batch") -> tuple[str, Any]:
        """The same of a workflow of a batch."""
        world = self.world
        return self.output(workflow, rollout=world.rollout, epoch=world.epoch, batch=batch)

    def _run(self, execution: Execution) -> tuple[str, Any]:
        name = execution.action.ref.partition(".")[2]
        if name not in self.known:
            return super()._run(execution)
        _, given = final(execution.action, execution.parameters, execution.context, self.config)
        own = {k: v for k, v in given.items() if k != "periodic" and v is not None}
        own = signing(self.known[name], own, self.world.context.config.system_user)
        with self._one_at_a_time:
            self.steps.append(name)
            try:
                result = self.known[name](self.world.context, **own)
            except EdgetuneError as error:
                result = {"error": safe_text(one_line(str(error))), "failed": ["all"]}
        # Whoever was told to reboot does so at once.
        self.world.hosts.reboot()
        return ended(result)


def ended(result: Mapping[str, Any]) -> tuple[str, Any]:
    """How an action ended with such a result, as StackStorm tells it."""
    status = "failed" if result.get("failed") else "succeeded"
    return status, {"result": safe(result), "exit_code": 0, "stdout": "", "stderr": ""}
