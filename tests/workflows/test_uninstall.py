# SPDX-License-Identifier: Apache-2.0
"""The workflows ``uninstall_agent`` and ``retire_tuning``, conducted on a PoP in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.action import safe
from edgetune.errors import EdgetuneError
from lab.runner import Engine, Execution, Pack
from tests.support import ROOT
from tests.support.conducting import STEPS, Impatient
from tests.support.world import EmptyWorld, World, changing

# Whole workflows are conducted.
pytestmark = pytest.mark.slow


class Conductor(Engine):
    """Has the steps done on a world, in this process."""

    def __init__(self, world: EmptyWorld, home: Path) -> None:
        super().__init__(Pack(ROOT), world.config, home)
        self.canceled = self.patience = Impatient()
        self.world = world

    def uninstall(self, **given: Any) -> tuple[str, dict[str, Any]]:
        """How it ended, and what it put out."""
        return self.output("uninstall_agent", **given)

    def output(self, workflow: str, **given: Any) -> tuple[str, dict[str, Any]]:
        """The same of any workflow on the PoP."""
        done = self.run(workflow, {"pop": "lab1", "requested_by": "ana", **given})
        return done.status, done.payload

    def _run(self, execution: Execution) -> tuple[str, Any]:
        name = execution.action.ref.partition(".")[2]
        if name not in STEPS:
            return super()._run(execution)
        try:
            result = dict(STEPS[name](self.world.context, **execution.parameters))
        except EdgetuneError as error:
            result = {"error": str(error), "failed": ["all"]}
        self.world.hosts.reboot()
        status = "failed" if result.get("failed") else "succeeded"
        return status, {"result": safe(result), "exit_code": 0, "stdout": "", "stderr": ""}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A tuning stands on every host."""
    made = changing(tmp_path)
    made.roll_all({"first_batch": 0, "end_batch": len(made.plan.batches)})
    for state in ("soaking", "promoting"):
        made.roll_all(made.mark(state))
    made.mark("complete")
    return made


def test_what_stands_is_taken_back_first_as_asked(world: World, tmp_path: Path) -> None:
    conductor = Conductor(world, tmp_path)
    status, told = conductor.uninstall()
    assert status == "failed"
    assert f"there stand on lab1: accept_queue by {world.rollout}" in told["message"]
    status, told = conductor.uninstall(dry_run=True, take_back=True)
    assert (status, told["done"], told["rollouts"]) == ("succeeded", [], [])
    assert "after taking back what stands" in told["message"]
    assert world.hosts.tuned and not world.hosts.left
    status, told = conductor.uninstall(take_back=True, reason="moving out")
    assert (status, told["rollouts"]) == ("succeeded", [world.rollout])
    assert told["done"] == sorted(world.hosts.left) == sorted(world.balancer.state)
    assert world.hosts.tuned == set()
    assert world.head.state == "rolled_back"
    assert "uninstalled: moving out" in [entry.reason for entry in world.head.history][-2]


def test_what_is_handed_over_stays_and_its_hosts_are_left(world: World, tmp_path: Path) -> None:
    conductor = Conductor(world, tmp_path)
    own = {"tuning": "accept_queue", "hand_over": True}
    status, told = conductor.output("retire_tuning", **own, dry_run=True)
    assert (status, told["rollouts"], len(told["files"])) == ("succeeded", [], 8)
    assert world.head.state == "complete" and len(world.hosts.tuned) == 8
    status, told = conductor.output("retire_tuning", **own, reason="moving out")
    assert (status, told["rollouts"]) == ("succeeded", [world.rollout])
    assert told["message"] == "accept_queue is handed over on 8 of 8 hosts of lab1"
    assert (world.head.state, world.hosts.tuned) == ("handed_over", set())
    status, told = conductor.uninstall()
    assert (status, len(told["done"])) == ("succeeded", 8)
    status, told = conductor.output("retire_tuning", tuning="accept_queue")
    assert status == "failed" and "was handed over at" in told["message"]


def test_a_dry_run_of_retiring_takes_nothing_back(world: World, tmp_path: Path) -> None:
    status, told = Conductor(world, tmp_path).output(
        "retire_tuning", tuning="accept_queue", dry_run=True
    )
    stands = f"accept_queue stands on lab1 by {world.rollout}, and would be taken back"
    assert (status, told["message"], told["rollouts"]) == ("succeeded", stands, [])
    assert world.head.state == "complete" and len(world.hosts.tuned) == 8
