# SPDX-License-Identifier: Apache-2.0
"""The BIOS of hosts: planned, set, proven after the reboot, taken back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.errors import FencedError, InputError, RefusedError
from edgetune.rollout import lease
from edgetune.rollout.steps.adopt_host import adopt_host
from edgetune.rollout.steps.check_rebooted import check_rebooted
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.rollout_status import rollout_status
from edgetune.rollout.steps.set_bios import set_bios
from edgetune.rollout.steps.verify_hosts import verify_hosts
from edgetune.rollout.steps.watch_drift import watch_drift
from tests.support import ROOT
from tests.support.bmcs import EARLY, HOME, SNOOP
from tests.support.builders import inventory_document, write_yaml
from tests.support.scenarios import Scenario, bios_scenario, names_of, scenarios
from tests.support.virtual_clock import VirtualClock
from tests.support.world import BiosWorld

FIRST, SHAM, SECOND = 0, 1, 2
_BELOW = 14 * " "


@pytest.fixture
def world(tmp_path: Path) -> BiosWorld:
    """Nothing is planned yet."""
    return BiosWorld(tmp_path)


class PlanMoves(Scenario):
    """Moves upon hosts for which nothing is planned yet."""

    def __init__(self, world: BiosWorld) -> None:
        super().__init__(world)
        self._made: list[str] = []

    def tuning(self, tunings: dict[str, dict[str, str]]) -> None:
        for name, attributes in tunings.items():
            _write_tuning(self.world, name, attributes)

    def enter(self, options: dict[str, Any]) -> None:
        """Begin a rollout that changes hosts."""
        self.world.enter(**options)
        self._names = names_of(self.world)

    def roll_all(self, state: str) -> None:
        self.world.roll_all(self.world.mark(state))

    def complete(self, options: dict[str, Any]) -> None:
        assert not self.held, "somebody who was fenced out may be at work"
        self._made.append(self.world.complete(**options))

    def retire(self, number: int) -> None:
        self.world.rollout = self._made[number]
        self.take_over(None)
        self.roll_back(None)
        assert self.result["quarantined"] == {}, self.where

    def adopt(self, given: list[Any]) -> None:
        number, host = given
        adopt_host(self.world.context, self._made[number], host)

    def modes(self, mode: str) -> None:
        assert set(_modes(self.world).values()) == {(mode, None)}, self.where

    def drift(self, expected: dict[str, list[str]]) -> None:
        found = watch_drift(self.world.context)["drift"]
        assert found.keys() == expected.keys(), self.where
        self._compare("drift", found, expected)

    def restart(self, host: str) -> None:
        self.world.hosts.restart(host, "GracefulRestart")
        self.world.hosts.reboot()

    def plans(self, options: dict[str, Any]) -> None:
        self.result = plan_rollout(
            self.world.context, **{"pop": "lab1", "tuning": "home_snoop", "seed": 7, **options}
        )

    def plans_again(self, _: object) -> None:
        digest = self.result["plan"]
        assert plan_rollout(self.world.context, plan=digest)["plan"] == digest


@pytest.mark.parametrize("case", scenarios(__file__))
def test_the_bios_is_set_proven_and_taken_back(
    case: Any, tmp_path: Path, clock: VirtualClock
) -> None:
    Scenario(bios_scenario(case[0], tmp_path, {}, {}), clock).play(case)


@pytest.mark.parametrize("case", scenarios(__file__, "bios_plans"))
def test_a_plan_sees_what_bmcs_tell(case: Any, world: BiosWorld) -> None:
    PlanMoves(world).play(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", scenarios(__file__, "bios_stacked"))
def test_every_rollout_leads_back_to_what_was_there(case: Any, world: BiosWorld) -> None:
    PlanMoves(world).play(case)


def _plan(world: BiosWorld, tuning: str = "home_snoop", **options: Any) -> dict[str, Any]:
    return plan_rollout(world.context, pop="lab1", tuning=tuning, seed=7, **options)


def _modes(world: BiosWorld) -> dict[str, tuple[str, str | None]]:
    return {name: world.bmcs.mode(name) for name in world.hosts.boot}


def _host(world: BiosWorld, batch: int) -> str:
    return next(iter(world.at(batch)))


def test_a_plan_shows_what_changes_in_the_bios_and_how_hosts_are_reset(world: BiosWorld) -> None:
    text = _plan(world)["text"]
    assert "bios.snoop_mode: early -> home (BIOS: SnoopMode=HomeSnoop)" in text
    ways = (
        "reboot      by the hosts themselves; one that goes on answering by its BMC:\n" + 14 * " "
    )
    assert f"{ways}GracefulRestart: e000, e001, e002" in text
    world.bmcs.resets["e002"] = ("On", "GracefulShutdown", "ForceRestart", "PushPowerButton")
    world.bmcs.resets["e004"] = ("On", "ForceOff")
    text = _plan(world, force_restart=True)["text"]
    assert f"{ways}GracefulRestart, then ForceRestart: e000, e001, e003" in text
    assert "\n              GracefulShutdown (and On), then ForceRestart: e002\n" in text
    assert "\n              in no way: e004\n" in text
    assert world.bmcs.sent == []


def test_a_plan_that_needs_no_bmc_asks_none(
    world: BiosWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor looks at the CA file of those there are."""
    monkeypatch.delattr(world.context, "bmcs")
    tunings = (*world.context.config.tunings, ROOT / "lab" / "tunings")
    world.context.config = replace(world.context.config, bmc_ca_file="/nowhere", tunings=tunings)
    _plan(world, tuning="tiny_accept_queue")
    with pytest.raises(InputError, match="bmc_ca_file"):
        _plan(world, tuning="accept_queue")


@pytest.mark.parametrize("tuning", ["home_snoop", "accept_queue"])
def test_the_inventory_vouches_for_a_host_that_tells_nothing(
    tmp_path: Path, world: BiosWorld, tuning: str
) -> None:
    world.hosts.told_by_dmi = lambda name: {"uuid": "", "serial": ""}
    inventory = inventory_document(bmcs=True)
    hosts = inventory["pops"]["lab1"]["hosts"]
    for name, host in hosts.items():
        host["bmc"]["machine"] = f"UUID-{name}"
    world.change_inventory(inventory)
    text = _plan(world, tuning=tuning)["text"]
    assert f"by its BMC:\n{_BELOW}GracefulRestart: e000, e001, e002, " in text
    hosts["e002"]["bmc"]["machine"] = "uuid-of-another"
    world.change_inventory(inventory)
    says = "leads to another machine: bmc.machine is uuid-of-another, and .* uuid-e002"
    with pytest.raises(RefusedError, match=says):
        _plan(world, tuning=tuning)


@pytest.mark.parametrize("tuning", ["home_snoop", "accept_queue"])
def test_a_bmc_is_asked_to_restart_no_other_machine_than_its_host(
    world: BiosWorld, tuning: str
) -> None:
    """Its address may come to lead elsewhere after the plan was made."""
    world.hosts.machine = {
        name: {"uuid": told, "serial": ""} for name, told in world.bmcs.system.items()
    }
    world.enter(tuning=tuning)
    (host,) = world.at(FIRST)
    world.hosts.heeds[host] = set()
    world.roll(FIRST, until=reboot_hosts)
    world.step(reboot_hosts, FIRST)
    world.age(FIRST, 10)
    world.step(check_rebooted, FIRST)
    (asked,) = (told for _, verb, told in world.bmcs.asked if verb == "reset")
    assert asked["machine"] == {"uuid": f"uuid-{host}", "serial": ""}


def test_a_host_without_a_bmc_is_named_by_its_field(world: BiosWorld, tmp_path: Path) -> None:
    document = inventory_document(bmcs=True)
    del document["pops"]["lab1"]["hosts"]["e004"]["bmc"]
    write_yaml(tmp_path / "inventory.yaml", document)
    with pytest.raises(InputError, match="pops.lab1.hosts.e004.bmc: is missing, and home_snoop"):
        _plan(world)
    assert _plan(world, tuning="accept_queue")["disruption"] == "reboot"


@pytest.mark.slow
@pytest.mark.parametrize("tuning", ["home_snoop", "snoop_and_queue"])
def test_a_rollout_the_whole_way_and_back(world: BiosWorld, tuning: str) -> None:
    world.enter(tuning=tuning)
    world.roll_all(world.mark("changing"))
    test = {name for batch in (FIRST, SECOND) for name in world.at(batch)}
    control = world.hosts.boot.keys() - test
    assert _modes(world) == {
        **dict.fromkeys(test, (HOME, None)),
        **dict.fromkeys(control, (EARLY, None)),
    }
    assert {world.hosts.reboots(name) for name in world.hosts.boot} == {1}
    for state in ("soaking", "promoting"):
        world.roll_all(world.mark(state))
    assert set(_modes(world).values()) == {(HOME, None)}
    assert world.hosts.tuned == (set(world.hosts.boot) if tuning != "home_snoop" else set())
    assert {world.hosts.reboots(name) for name in control} == {2}
    world.mark("complete")
    world.take_over()
    world.roll_back()
    assert set(_modes(world).values()) == {(EARLY, None)}
    assert (world.hosts.tuned, world.head.quarantined) == (set(), {})
    for name in world.hosts.boot:
        assert world.bmcs.sent_to(name, "set") == [{SNOOP: HOME}, {SNOOP: EARLY}]
    assert set(world.balancer.state.values()) == {"ready"}
    assert world.hosts.disturbed == []


def test_all_attributes_are_written_down_before_the_bmc_is_asked(world: BiosWorld) -> None:
    world.enter()
    host = _host(world, FIRST)
    found: list[dict[str, Any]] = []

    def look(moment: str) -> None:
        if moment == f"before {host} BIOS set":
            text = world.context.store.get(f"edgetune.bios.lab1.{host}")
            found.append(json.loads(text or "{}"))

    world.moments.at = look
    world.roll(FIRST)
    ((journal,),) = (found,)
    (entry,) = journal["entries"]
    assert (journal["system"], entry["rollout"]) == (f"uuid-{host}", world.rollout)
    assert entry["snapshot"] == {SNOOP: EARLY, "BootMode": "Uefi"}
    assert entry["changes"] == {SNOOP: {"was": EARLY, "to": HOME}}


@pytest.mark.parametrize("fault", ["unreachable", "busy"])
def test_one_answer_that_is_lost_after_the_boot_fails_no_host(
    world: BiosWorld, clock: VirtualClock, fault: str
) -> None:
    world.enter()
    host = _host(world, FIRST)
    world.roll(FIRST, until=verify_hosts)
    world.bmcs.faults[host] = {fault}
    clock.then = world.bmcs.faults[host].clear
    assert world.step(verify_hosts, FIRST)["failed"] == []
    assert world.at(FIRST) == {host: "verified"}


def _write_tuning(world: BiosWorld, name: str, attributes: dict[str, str]) -> None:
    folder = world.context.config.tunings[0]
    why = {"why": "It is wanted.", "source": "a test"}
    settings = [
        {"kind": "bios.attribute", "attribute": attribute, "value": value, **why}
        for attribute, value in attributes.items()
    ]
    document = {
        "name": name,
        "version": "1.0.0",
        "summary": "Another value.",
        "intent": {"improve": "packet_drops"},
        "guards": [{"metric": "health_failed", "margin": 0.5}],
        "settings": settings,
    }
    write_yaml(folder / f"{name}.yaml", document)


@pytest.mark.parametrize("tuning", ["home_snoop", "accept_queue"])
def test_bmcs_that_are_swapped_in_the_inventory_refuse_the_plan(
    world: BiosWorld, tuning: str
) -> None:
    world.hosts.machine = {
        name: {"uuid": told, "serial": ""} for name, told in world.bmcs.system.items()
    }
    _plan(world, tuning)
    system = world.bmcs.system
    system["e001"], system["e002"] = system["e002"], system["e001"]
    with pytest.raises(RefusedError) as refused:
        _plan(world, tuning)
    assert str(refused.value) == (
        "e001: pops.lab1.hosts.e001.bmc.address leads to another machine: the host is UUID "
        "uuid-e001, and that BMC's machine UUID uuid-e002; e002: pops.lab1.hosts.e002.bmc.address "
        "leads to another machine: the host is UUID uuid-e002, and that BMC's machine UUID "
        "uuid-e001 (exclude= leaves hosts out)"
    )
    _plan(world, tuning, exclude=["e001", "e002"])


def test_another_version_of_a_tuning_is_refused(world: BiosWorld) -> None:
    world.complete(tuning="snoop_and_queue")
    path = world.context.config.tunings[0] / "snoop_and_queue.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("1.0.0", "1.0.1"), encoding="utf-8")
    world.hosts.tuned.clear()
    with pytest.raises(RefusedError, match="another version of snoop_and_queue stands in its BIOS"):
        _plan(world, tuning="snoop_and_queue")


def test_a_change_is_not_sent_by_whoever_was_fenced_while_the_bmc_was_read(
    world: BiosWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_PERMIT_HOLDS", 0)
    world.enter()
    world.roll(FIRST, until=set_bios)
    (host,) = world.at(FIRST)
    real = world.bmcs._foreign

    def foreign(*of: Any) -> Any:
        if len(world.bmcs.asked) == before + 2:
            world.take_over()
        return real(*of)

    monkeypatch.setattr(world.bmcs, "_foreign", foreign)
    before = len(world.bmcs.asked)
    with pytest.raises(FencedError):
        world.step(set_bios, FIRST)
    assert [verb for _, verb, _ in world.bmcs.asked[before:]] == ["plan", "set"]
    assert world.bmcs.mode(host) == (EARLY, None)


def test_a_status_has_no_login(world: BiosWorld) -> None:
    world.enter()
    world.roll(FIRST)
    shown = json.dumps(rollout_status(world.context, rollout=world.rollout))
    assert not re.search("password|credentials", shown)
