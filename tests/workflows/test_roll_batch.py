# SPDX-License-Identifier: Apache-2.0
"""The workflows ``roll_batch`` and ``restore_batch``, conducted by the local runner on a PoP in
memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.steps.check_rebooted import check_rebooted
from edgetune.rollout.steps.resume_pop import resume_pop
from tests.support.conducting import STEPS, Conductor
from tests.support.scenarios import Scenario, begun, bios_scenario, scenarios
from tests.support.world import BiosWorld, EmptyWorld, changing

# Whole workflows are conducted.
pytestmark = pytest.mark.slow

_VERIFIED = ["verify_hosts", "undrain_hosts", "check_health"]


def _in_service(world: EmptyWorld) -> list[str]:
    return [name for name, server in world.balancer.servers().items() if server.is_serving]


@pytest.fixture
def world(tmp_path: Path) -> BiosWorld:
    made = BiosWorld(tmp_path)
    made.enter()
    return made


class ConductMoves(Scenario):
    """Moves of workflows."""

    def __init__(self, world: EmptyWorld, home: Path) -> None:
        super().__init__(world)
        self._home = home

    def conduct(self, steps: str) -> None:
        self._conduct("roll_batch", steps, "succeeded")

    def restore(self, steps: str) -> None:
        self._conduct("restore_batch", steps, "succeeded")

    def fails(self, steps: str) -> None:
        self._conduct("roll_batch", steps, "failed")

    def refuses(self, workflows: dict[str, str]) -> None:
        for workflow, says in workflows.items():
            status, output = Conductor(self.world, self._home).roll(self._batch, workflow)
            assert (status, output["message"]) == ("failed", says), self.where

    def _conduct(self, workflow: str, steps: str, ends: str) -> None:
        conductor = Conductor(self.world, self._home)
        status, _ = conductor.roll(self._batch, workflow)
        assert (status, conductor.steps) == (ends, steps.split()), self.where


@pytest.mark.parametrize("case", scenarios(__file__))
def test_a_batch_takes_the_steps_that_it_needs(case: Any, tmp_path: Path) -> None:
    begins = begun if "plan" in case[0] else lambda *given: bios_scenario(*given, {}, {})
    ConductMoves(begins(case[0], tmp_path), tmp_path).play(case)


@pytest.mark.parametrize("batch", [0, 1])
def test_a_bmc_that_is_busy_is_asked_until_it_is_not(
    world: BiosWorld, tmp_path: Path, batch: int
) -> None:
    (host,) = world.at(batch)
    world.bmcs.faults[host] = {"busy"}
    conductor = Conductor(world, tmp_path)

    def look(moment: str) -> None:
        if conductor.steps.count("set_bios") == 3:
            world.bmcs.faults[host] = set()

    world.moments.at = look
    assert conductor.roll(batch)[0] == "succeeded"
    assert conductor.steps.count("set_bios") == 3
    assert world.at(batch) == {host: "done"}


def test_a_freeze_is_waited_for_in_few_steps(tmp_path: Path, monkeypatch: Any) -> None:
    world = changing(tmp_path)
    frozen = ["lab1 is frozen by weekend", "lab1 is frozen by weekend"]
    monkeypatch.setattr(
        "edgetune.rollout.gates.floor.why_frozen",
        lambda context, head: frozen.pop() if frozen else "",
    )
    conductor = Conductor(world, tmp_path)
    assert conductor.roll(0)[0] == "succeeded"
    assert conductor.steps[:3] == ["drain_hosts"] * 3
    assert conductor.patience.delays.count(300) == 2


def test_a_person_is_waited_for_between_two_batches(tmp_path: Path) -> None:
    world = changing(tmp_path, pause_after=1)
    assert Conductor(world, tmp_path).roll(0)[0] == "succeeded"
    conductor = Conductor(world, tmp_path)

    def resume(seconds: float) -> None:
        if len(conductor.patience.delays) == 3:
            resume_pop(world.context, "lab1", cause="pause_after")

    conductor.patience.passes = resume
    assert conductor.roll(1)[0] == "succeeded"
    assert conductor.steps[:5] == [*["drain_hosts"] * 4, "reboot_hosts"]
    assert conductor.patience.delays[:3] == [60, 60, 60]
    assert set(world.at(1).values()) == {"done"}


@pytest.mark.parametrize("held_by", ["room", "surge"])
def test_hosts_that_boot_do_not_wait_for_one_that_has_to_serve_on(
    tmp_path: Path, monkeypatch: Any, held_by: str
) -> None:
    world = changing(tmp_path, disruption="reboot", batch_size=3)
    world.roll(0)
    world.roll(1, until=check_rebooted)
    back = world.mark("rolling_back")["first_batch"]
    opened = as_owner(world.context, world.rollout)
    batch = opened.batch(back)
    serving, *booting = batch.hosts
    assert set(world.at(back).values()) == {"coming_back"}
    batch.hosts[serving].step, batch.hosts[serving].lb_before = "planned", None
    opened.save_batch(batch)
    world.balancer.state[serving], world.balancer.up[serving] = "ready", True
    world.hosts.not_ready.discard(serving)
    if held_by == "room":
        others = [name for name in world.balancer.state if name not in batch.hosts]
        for name in others[:2]:
            world.balancer.state[name] = "maint"
    else:
        monkeypatch.setattr(
            "edgetune.rollout.gates.floor.surge_of",
            lambda opened: "" if set(booting) & set(_in_service(world)) else "too much to carry",
        )
    conductor = Conductor(world, tmp_path)

    def passes(seconds: float) -> None:
        if len(conductor.steps) > 30:
            conductor.canceled.set()

    conductor.patience.passes = passes
    assert conductor.roll(back, "restore_batch")[0] == "succeeded"
    assert conductor.steps[:3] == ["drain_hosts", "check_rebooted", "restore_hosts"]
    assert conductor.steps.count("drain_hosts") == 2
    assert set(world.at(back).values()) == {"done"}


@pytest.mark.parametrize("disruption", ["reboot", "live"])
@pytest.mark.parametrize("step", ["apply_tuning", "restore_hosts"])
def test_what_follows_at_once_is_no_task_of_its_own(
    tmp_path: Path, monkeypatch: Any, step: str, disruption: str
) -> None:
    world = changing(tmp_path, disruption=disruption)
    if step == "restore_hosts":
        world.roll(0)
        world.mark("rolling_back")
    first, following = STEPS[step], ("reboot_hosts", "verify_hosts", "undrain_hosts")

    def at_once(context: Any, **given: Any) -> dict[str, Any]:
        result = first(context, **given)
        while result["next"] in following:
            result = {**result, **STEPS[result["next"]](context, **given)}
        return result

    monkeypatch.setitem(STEPS, step, at_once)
    conductor = Conductor(world, tmp_path)
    number = world.head.first_restore if step == "restore_hosts" else 0
    workflow = "restore_batch" if step == "restore_hosts" else "roll_batch"
    assert conductor.roll(number, workflow)[0] == "succeeded"
    rest = ["check_rebooted", *_VERIFIED] if disruption == "reboot" else ["check_health"]
    assert conductor.steps == ["drain_hosts", step, *rest]
    assert set(world.at(number).values()) == {"done"}


def test_a_drain_that_lasts_is_looked_at_more_and_more_rarely(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("edgetune.rollout.steps.drain_hosts.AT_ONCE", 0)
    world = EmptyWorld(tmp_path, drain_deadline=600)
    world.begin(tmp_path)
    for state in ("baseline", "changing"):
        world.mark(state)
    (host,) = world.at(0)
    world.balancer.sessions[host] = 1
    conductor = Conductor(world, tmp_path)

    def passes(seconds: float) -> None:
        world.age(0, seconds)
        if sum(conductor.patience.delays) > 100:
            world.balancer.sessions[host] = 0

    conductor.patience.passes = passes
    assert conductor.roll(0)[0] == "succeeded"
    *delays, _ = conductor.patience.delays
    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (2, 15)
    assert len(delays) < 20


def test_a_boot_is_awaited_as_long_as_the_one_before(tmp_path: Path) -> None:
    world = changing(tmp_path)
    conductor = Conductor(world, tmp_path)
    conductor.patience.passes = lambda seconds: world.age(0, 100) if seconds == 2 else None
    assert conductor.roll(0)[0] == "succeeded"
    conductor.patience.delays.clear()
    assert conductor.roll(1)[0] == "succeeded"
    assert conductor.patience.delays == [77]
