# SPDX-License-Identifier: Apache-2.0
"""The BIOS of hosts: planned, set, proven after the reboot, taken back."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.errors import FencedError, InputError, RefusedError
from edgetune.rollout import lease
from edgetune.rollout.bios_journal import load_journal
from edgetune.rollout.lease import as_owner
from edgetune.rollout.steps.adopt_host import adopt_host
from edgetune.rollout.steps.check_rebooted import check_rebooted
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.restore_live import restore_live
from edgetune.rollout.steps.rollout_status import rollout_status
from edgetune.rollout.steps.set_bios import set_bios
from edgetune.rollout.steps.verify_hosts import verify_hosts
from edgetune.rollout.steps.watch_drift import watch_drift
from tests.support import ROOT
from tests.support.bmcs import COD, EARLY, HOME, SNOOP
from tests.support.builders import as_samples, inventory_document, write_yaml
from tests.support.scenarios import Scenario, bios_scenario, scenarios
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


def test_hosts_as_wanted_are_neither_drained_nor_rebooted(world: BiosWorld) -> None:
    world.bmcs.current["e003"][SNOOP] = HOME
    assert "as wanted already: e003" in _plan(world, alpha_benefit=0.1)["text"]
    world.enter(alpha_benefit=0.1)
    world.roll_all(world.mark("changing"))
    assert world.hosts.reboots("e003") == 0
    assert "e003" not in {name for name, _ in world.balancer.log}


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


@pytest.mark.slow
def test_stacked_tunings_lead_back_to_what_was_there_before_them(world: BiosWorld) -> None:
    lower = world.complete()
    for attributes in world.bmcs.current.values():
        assert attributes[SNOOP] == HOME
    upper = _stack(world, "cod", COD)
    _retire(world, lower)
    # What came later holds it.
    assert set(_modes(world).values()) == {(COD, None)}
    _retire(world, upper)
    assert set(_modes(world).values()) == {(EARLY, None)}
    assert all(not load_journal(world.context, "lab1", n).entries for n in world.hosts.boot)


@pytest.mark.slow
def test_stacked_tunings_are_retired_from_the_top(world: BiosWorld) -> None:
    lower = world.complete()
    upper = _stack(world, "cod", COD)
    _retire(world, upper)
    assert set(_modes(world).values()) == {(HOME, None)}
    _retire(world, lower)
    assert set(_modes(world).values()) == {(EARLY, None)}


def test_what_another_tuning_set_already_stays_when_that_one_is_retired(world: BiosWorld) -> None:
    lower = world.complete()
    _restock(world)
    upper = world.complete(tuning="snoop_and_queue")
    _retire(world, lower)
    assert set(_modes(world).values()) == {(HOME, None)}
    _retire(world, upper)
    assert set(_modes(world).values()) == {(EARLY, None)}


def _stack(world: BiosWorld, name: str, value: str) -> str:
    """Another tuning of the same attribute, rolled out over what stands."""
    _write_tuning(world, name, {SNOOP: value})
    _restock(world)
    return world.complete(tuning=name)


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


def _restock(world: BiosWorld) -> None:
    """The PoP is free from now: nobody who was fenced out is at work any more."""
    assert world.context.claims.holder("lab1") is None


def _retire(world: BiosWorld, rollout: str) -> None:
    world.rollout = rollout
    world.take_over()
    assert world.roll_back()["quarantined"] == {}


@pytest.mark.parametrize("lost", [SNOOP, "BootMode"])
def test_a_machine_on_which_a_part_still_stands_is_not_adopted(world: BiosWorld, lost: str) -> None:
    _write_tuning(world, "two", {SNOOP: COD, "BootMode": "Bios"})
    world.enter(tuning="two")
    world.roll_all({"first_batch": FIRST, "end_batch": SHAM})
    world.mark("soaking")
    (host,) = world.at(FIRST)
    before = {SNOOP: EARLY, "BootMode": "Uefi"}
    world.bmcs.current[host][lost] = before[lost]
    with pytest.raises(RefusedError, match=f"{host} is no new machine: two stands in its BIOS"):
        adopt_host(world.context, world.rollout, host)
    world.bmcs.current[host].update(before)
    adopt_host(world.context, world.rollout, host)


def test_a_machine_with_a_later_tuning_upon_it_is_not_adopted(world: BiosWorld) -> None:
    lower = world.complete()
    _stack(world, "cod", COD)
    with pytest.raises(RefusedError, match="e000 is no new machine: home_snoop stands"):
        adopt_host(world.context, lower, "e000")
    world.bmcs.system["e000"] = "uuid-new"
    world.hosts.tuned.discard("e000")
    adopt_host(world.context, lower, "e000")


def test_a_plan_sees_that_a_machine_was_replaced(world: BiosWorld) -> None:
    rollout = world.complete()
    world.bmcs.system["e002"] = "uuid-new"
    world.bmcs.current["e002"][SNOOP] = EARLY
    says = f"e002: the machine is uuid-new, and the BIOS of uuid-e002 was set by {rollout}; st2 run"
    with pytest.raises(RefusedError, match=says):
        _plan(world)


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


def test_bios_that_is_not_as_left_is_drift(world: BiosWorld) -> None:
    world.complete()
    assert watch_drift(world.context)["drift"] == {}
    world.bmcs.current["e003"][SNOOP] = EARLY
    world.bmcs.faults["e005"] = {"unreachable"}
    drift = watch_drift(world.context)["drift"]
    assert drift == {
        "e003": ["BIOS: SnoopMode is EarlySnoop, and HomeSnoop is not pending"],
        "e005": ["BIOS: timed out"],
    }


def test_a_value_that_reverts_with_the_next_boot_is_drift(world: BiosWorld) -> None:
    world.bmcs.faults["e003"] = {"reverts"}
    world.complete()
    assert watch_drift(world.context)["drift"] == {}
    world.hosts.restart("e003", "GracefulRestart")
    world.hosts.reboot()
    assert list(watch_drift(world.context)["drift"]) == ["e003"]


def test_drift_asks_no_bmc_of_hosts_that_no_tuning_touched(world: BiosWorld) -> None:
    world.complete(exclude=("e003",), alpha_benefit=0.1)
    asked = len(world.bmcs.asked)
    watch_drift(world.context)
    assert {name for name, _, _ in world.bmcs.asked[asked:]} == world.hosts.boot.keys() - {"e003"}


def test_a_surge_drains_nobody_and_sets_nothing(world: BiosWorld) -> None:
    world.enter()
    _surge(world)
    assert world.step(drain_hosts, FIRST)["waiting"] == 1
    assert world.step(set_bios, FIRST)["waiting"] == 0
    assert (world.bmcs.sent, world.balancer.log) == ([], [])


def test_a_host_that_is_out_when_the_surge_comes_goes_on(world: BiosWorld) -> None:
    world.enter()
    world.roll(FIRST, until=set_bios)
    _surge(world)
    world.roll(FIRST)
    host = _host(world, FIRST)
    assert (world.bmcs.mode(host), world.at(FIRST)) == ((HOME, None), {host: "done"})
    # Its way back needs a drain, and nothing of it can be taken back in place.
    back = world.mark("rolling_back")["first_batch"]
    assert world.step(drain_hosts, back)["waiting"] == 1
    world.step(restore_live, back)
    assert world.bmcs.mode(host) == (HOME, None)


def _surge(world: BiosWorld) -> None:
    """The PoP takes eighty times its usual load."""
    opened = as_owner(world.context, world.rollout)
    opened.head.usual_load = 100.0
    opened.save()
    now = time.time()
    rows = [
        {
            "host": name,
            "time": now - 60 + 60 * step,
            "boot_id": "b",
            "uptime": 100.0 + 60 * step,
            "counters": {"rx_packets": 60_000 * step},
            "gauges": {},
        }
        for step in range(2)
        for name in world.hosts.boot
    ]
    world.context.samples.add("lab1", as_samples(rows))


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
