# SPDX-License-Identifier: Apache-2.0
"""The workflow ``roll_batch``, conducted by the local runner on a PoP in memory."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from edgetune.entry import safe
from edgetune.rollout import bios, change, drain, looks, reboot
from lab.runner import Engine, Execution, Pack
from tests.bmcs import EARLY, HOME
from tests.builders import ROOT
from tests.world import BiosWorld, EmptyWorld, changing

_STEPS = {
    step.__name__: step
    for step in (
        drain.drain_hosts,
        drain.check_drained,
        bios.set_bios,
        change.apply_tuning,
        change.restore_hosts,
        reboot.reboot_hosts,
        reboot.check_rebooted,
        change.verify_hosts,
        drain.undrain_hosts,
        looks.check_health,
    )
}
_DRAINED = ["drain_hosts", "check_drained"]
_VERIFIED = ["verify_hosts", "undrain_hosts", "check_health"]
_REBOOTED = ["reboot_hosts", "check_rebooted"]


class _Impatient(threading.Event):
    """No task is delayed; ``delays`` says by how much it would have been."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.delays.append(timeout)
        return self.is_set()


class Conductor(Engine):
    """Has the steps done on a world, in this process."""

    def __init__(self, world: EmptyWorld, home: Path) -> None:
        super().__init__(Pack(ROOT), world.config, home)
        self.canceled = self.patience = _Impatient()
        self.steps: list[str] = []
        self._world = world

    def roll(self, batch: int) -> tuple[str, Any]:
        """How the workflow ended, and what it put out."""
        world = self._world
        given = {"rollout": world.rollout, "epoch": world.epoch, "batch": batch}
        execution = self.run("roll_batch", given)
        return execution.status, execution.payload

    def _run(self, execution: Execution) -> tuple[str, Any]:
        name = execution.action.ref.partition(".")[2]
        if name not in _STEPS:
            return super()._run(execution)
        self.steps.append(name)
        parameters = dict(execution.parameters)
        result = _STEPS[name](self._world.site, **parameters)
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
    status, output = conductor.roll(0)
    assert (status, output["what"]) == ("succeeded", "change")
    assert conductor.steps == [*_DRAINED, "set_bios", "apply_tuning", *_REBOOTED, *_VERIFIED]
    (host,) = world.at(0)
    assert (world.bmcs.mode(host), world.hosts.reboots(host)) == ((HOME, None), 1)


def test_a_sham_is_looked_at_before_its_reboot(world: BiosWorld, tmp_path: Path) -> None:
    conductor = Conductor(world, tmp_path)
    assert conductor.roll(1)[0] == "succeeded"
    assert conductor.steps == [*_DRAINED, "set_bios", *_REBOOTED, *_VERIFIED]
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
    monkeypatch.setattr(drain, "why_frozen", lambda head: frozen.pop() if frozen else "")
    conductor = Conductor(world, tmp_path)
    assert conductor.roll(0)[0] == "succeeded"
    assert conductor.steps[:4] == ["drain_hosts", "drain_hosts", *_DRAINED]
    assert conductor.patience.delays.count(300) == 2


def test_a_rollback_sets_the_bios_back_before_it_reboots(world: BiosWorld, tmp_path: Path) -> None:
    Conductor(world, tmp_path).roll(0)
    (host,) = world.at(0)
    back = world.mark("rolling_back")["first_batch"]
    conductor = Conductor(world, tmp_path)
    assert conductor.roll(back)[0] == "succeeded"
    ways = ["check_rebooted", "set_bios", "restore_hosts"]
    assert conductor.steps == [*_DRAINED, *ways, *_REBOOTED, *_VERIFIED]
    assert (world.bmcs.mode(host), world.hosts.reboots(host)) == ((EARLY, None), 2)


def test_a_rollback_of_what_only_waits_for_a_boot_reboots_nobody(
    world: BiosWorld, tmp_path: Path
) -> None:
    world.roll(0, until=reboot.reboot_hosts)
    back = world.mark("rolling_back")["first_batch"]
    conductor = Conductor(world, tmp_path)
    assert conductor.roll(back)[0] == "succeeded"
    ways = ["check_rebooted", "set_bios", "restore_hosts"]
    assert conductor.steps == [*_DRAINED, *ways, *_VERIFIED]
    assert world.hosts.told("reboot") == []


def test_nothing_follows_a_bios_that_is_refused(world: BiosWorld, tmp_path: Path) -> None:
    (host,) = world.at(0)
    world.bmcs.pending[host] = {"BootMode": "Bios"}
    conductor = Conductor(world, tmp_path)
    assert conductor.roll(0)[0] == "failed"
    assert conductor.steps == [*_DRAINED, "set_bios"]


def test_other_tunings_have_nothing_to_do_with_bmcs(tmp_path: Path) -> None:
    world = changing(tmp_path)
    conductor = Conductor(world, tmp_path)
    for batch in (0, 1):
        assert conductor.roll(batch)[0] == "succeeded"
    back = world.mark("rolling_back")["first_batch"]
    assert conductor.roll(back)[0] == "succeeded"
    assert "set_bios" not in conductor.steps
    assert world.bmcs.asked == []
