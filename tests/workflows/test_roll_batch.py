# SPDX-License-Identifier: Apache-2.0
"""The workflows ``roll_batch`` and ``restore_batch``, conducted by the local runner on a PoP in
memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.action import safe
from edgetune.rollout.lease import as_owner
from edgetune.rollout.steps.check_rebooted import check_rebooted
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.resume_pop import resume_pop
from lab.runner import Engine, Execution, Pack
from tests.support import ROOT
from tests.support.bmcs import EARLY, HOME
from tests.support.conducting import STEPS, Impatient
from tests.support.world import BiosWorld, EmptyWorld, changing

# Whole workflows are conducted.
pytestmark = pytest.mark.slow

_VERIFIED = ["verify_hosts", "undrain_hosts", "check_health"]
_REBOOTED = ["reboot_hosts", "check_rebooted"]


def _in_service(world: EmptyWorld) -> list[str]:
    return [name for name, server in world.balancer.servers().items() if server.is_serving]


class Conductor(Engine):
    """Has the steps done on a world, in this process."""

    def __init__(self, world: EmptyWorld, home: Path) -> None:
        super().__init__(Pack(ROOT), world.config, home)
        self.canceled = self.patience = Impatient()
        self.steps: list[str] = []
        self._world = world

    def restore(self, batch: int) -> tuple[str, Any]:
        """How the way back ended, and what it put out."""
        return self.roll(batch, "restore_batch")

    def roll(self, batch: int, workflow: str = "roll_batch") -> tuple[str, Any]:
        """How the workflow ended, and what it put out."""
        world = self._world
        given = {"rollout": world.rollout, "epoch": world.epoch, "batch": batch}
        execution = self.run(workflow, given)
        return execution.status, execution.payload

    def _run(self, execution: Execution) -> tuple[str, Any]:
        name = execution.action.ref.partition(".")[2]
        if name not in STEPS:
            return super()._run(execution)
        self.steps.append(name)
        parameters = dict(execution.parameters)
        result = STEPS[name](self._world.context, **parameters)
        self._world.hosts.reboot()
        status = "failed" if result.get("failed") else "succeeded"
        return status, {"result": safe(result), "exit_code": 0, "stdout": "", "stderr": ""}


@pytest.fixture
def world(tmp_path: Path) -> BiosWorld:
    made = BiosWorld(tmp_path)
    made.enter()
    return made


def test_a_change_sets_the_bios_before_the_one_reboot(world: BiosWorld, tmp_path: Path) -> None:
    conductor = Conductor(world, tmp_path)
    status, _ = conductor.roll(0)
    assert status == "succeeded"
    assert conductor.steps == ["drain_hosts", "set_bios", "apply_tuning", *_REBOOTED, *_VERIFIED]
    (host,) = world.at(0)
    assert (world.bmcs.mode(host), world.hosts.reboots(host)) == ((HOME, None), 1)


def test_a_sham_is_looked_at_before_its_reboot(world: BiosWorld, tmp_path: Path) -> None:
    conductor = Conductor(world, tmp_path)
    assert conductor.roll(1)[0] == "succeeded"
    assert conductor.steps == ["drain_hosts", "set_bios", *_REBOOTED, *_VERIFIED]
    assert world.bmcs.sent == []


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
        "edgetune.rollout.steps.drain_hosts.why_frozen",
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


def test_a_rollback_sets_the_bios_back_before_it_reboots(world: BiosWorld, tmp_path: Path) -> None:
    Conductor(world, tmp_path).roll(0)
    (host,) = world.at(0)
    back = world.mark("rolling_back")["first_batch"]
    conductor = Conductor(world, tmp_path)
    assert conductor.restore(back)[0] == "succeeded"
    ways = ["drain_hosts", "set_bios", "restore_hosts"]
    assert conductor.steps == [*ways, *_REBOOTED, *_VERIFIED]
    assert (world.bmcs.mode(host), world.hosts.reboots(host)) == ((EARLY, None), 2)


def test_a_rollback_of_what_only_waits_for_a_boot_reboots_nobody(
    world: BiosWorld, tmp_path: Path
) -> None:
    world.roll(0, until=reboot_hosts)
    back = world.mark("rolling_back")["first_batch"]
    conductor = Conductor(world, tmp_path)
    assert conductor.restore(back)[0] == "succeeded"
    assert conductor.steps == ["drain_hosts", "set_bios", "restore_hosts", *_VERIFIED]
    assert world.hosts.told("reboot") == []


def test_a_rollback_waits_for_a_host_that_boots(world: BiosWorld, tmp_path: Path) -> None:
    world.roll(0, until=check_rebooted)
    back = world.mark("rolling_back")["first_batch"]
    conductor = Conductor(world, tmp_path)
    assert conductor.restore(back)[0] == "succeeded"
    waits = ["drain_hosts", "check_rebooted"]
    assert conductor.steps == [*waits, "set_bios", "restore_hosts", *_REBOOTED, *_VERIFIED]


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
            "edgetune.rollout.steps.drain_hosts.surge_of",
            lambda opened: "" if set(booting) & set(_in_service(world)) else "too much to carry",
        )
    conductor = Conductor(world, tmp_path)

    def passes(seconds: float) -> None:
        if len(conductor.steps) > 30:
            conductor.canceled.set()

    conductor.patience.passes = passes
    assert conductor.restore(back)[0] == "succeeded"
    assert conductor.steps[:3] == ["drain_hosts", "check_rebooted", "restore_hosts"]
    assert conductor.steps.count("drain_hosts") == 2
    assert set(world.at(back).values()) == {"done"}


def test_a_batch_takes_few_steps_and_fewer_where_hosts_serve_on(tmp_path: Path) -> None:
    for disruption, last in (("reboot", _VERIFIED), ("live", ["verify_hosts", "check_health"])):
        world = changing(tmp_path / disruption, disruption=disruption)
        boots = _REBOOTED if disruption == "reboot" else []
        conductor = Conductor(world, tmp_path)
        assert conductor.roll(0)[0] == "succeeded"
        assert conductor.steps == ["drain_hosts", "apply_tuning", *boots, *last]
        back = world.mark("rolling_back")["first_batch"]
        conductor.steps.clear()
        assert conductor.restore(back)[0] == "succeeded"
        assert conductor.steps == ["drain_hosts", "restore_hosts", *boots, *last]
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


def test_nothing_follows_a_bios_that_is_refused(world: BiosWorld, tmp_path: Path) -> None:
    (host,) = world.at(0)
    world.bmcs.pending[host] = {"BootMode": "Bios"}
    conductor = Conductor(world, tmp_path)
    assert conductor.roll(0)[0] == "failed"
    assert conductor.steps == ["drain_hosts", "set_bios"]


def test_other_tunings_have_nothing_to_do_with_bmcs(tmp_path: Path) -> None:
    world = changing(tmp_path)
    conductor = Conductor(world, tmp_path)
    for batch in (0, 1):
        assert conductor.roll(batch)[0] == "succeeded"
    back = world.mark("rolling_back")["first_batch"]
    assert conductor.restore(back)[0] == "succeeded"
    assert "set_bios" not in conductor.steps
    assert world.bmcs.asked == []


def test_a_batch_of_the_other_way_is_refused(tmp_path: Path) -> None:
    world = changing(tmp_path)
    conductor = Conductor(world, tmp_path)
    status, output = conductor.restore(0)
    assert (status, output["message"]) == (
        "failed",
        "this batch takes nothing back, roll_batch takes it on",
    )
    assert conductor.roll(0)[0] == "succeeded"
    back = world.mark("rolling_back")["first_batch"]
    status, output = conductor.roll(back)
    assert (status, output["message"]) == (
        "failed",
        "this batch takes the tuning back, which restore_batch does",
    )
