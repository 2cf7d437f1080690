# SPDX-License-Identifier: Apache-2.0
"""Rollouts whose BMCs are the lab's, over HTTPS; hosts and load balancer are in memory.

Whoever sets the BIOS of hosts may die at any moment: there BMCs are in memory, too, and each host
ends wholly old or wholly new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgetune.net.bmc.bmcs import Bmcs
from edgetune.net.bmc.credentials import Login
from edgetune.net.result import HostResult
from edgetune.rollout.hosts.bios import load_journal
from lab.bmc import Machine, Server, Service, serve
from lab.bmc.certificates import make_certificates
from tests.support.bmcs import EARLY, HOME, SNOOP
from tests.support.builders import write_yaml
from tests.support.world import BiosWorld, Died, Moments, at_every_moment

pytestmark = pytest.mark.slow

FIRST, SHAM, LAST = 0, 1, 2
NAMES = [f"e{i:03d}" for i in range(8)]
LOGIN = Login("edgetune", "pw")


class _Asked:
    """The real BMCs; each change of theirs is a moment at which a test may die."""

    def __init__(self, real: Bmcs, moments: Moments) -> None:
        self._real, self._moments = real, moments

    def ask(self, hosts: Any, verb: str, *given: Any, **named: Any) -> dict[str, HostResult]:
        with self._moments.around(f"BMC {verb}"):
            return self._real.ask(hosts, verb, *given, **named)


class Site:
    """Eight machines of one make, and a world that reaches them."""

    def __init__(self, folder: Path, personality: str) -> None:
        self.machines = {name: Machine(name, personality, driven=True) for name in NAMES}
        addresses = [(f"127.0.10.{number}", 0) for number in range(1, 9)]
        files = make_certificates(folder, [address for address, _ in addresses])
        by_address = {ip: self.machines[name] for (ip, _), name in zip(addresses, NAMES)}
        service = Service(LOGIN.username, LOGIN.password)
        self.server: Server = serve(by_address, addresses, files.certificate, files.key, service)
        self.world = BiosWorld(folder / "world", bmc_ca_file=str(files.authority))
        self._give_addresses(folder / "world" / "inventory.yaml")
        self.real = Bmcs(self.world.context.config, lambda name: LOGIN)
        self.world.context.bmcs = _Asked(self.real, self.world.moments)  # type: ignore[assignment]
        self.world.hosts.boots = self._boot
        self.world.hosts.told_by_dmi = self._told_by_dmi

    @property
    def modes(self) -> dict[str, str]:
        return {name: machine.snoop_mode for name, machine in self.machines.items()}

    def changes(self, name: str) -> list[tuple[str, str]]:
        """What was asked of a machine, but for reading and sessions."""
        log = self.machines[name].log
        return [(how, where) for how, where in log if how != "GET" and "Sessions" not in where]

    def _give_addresses(self, inventory: Path) -> None:
        document = yaml.safe_load(inventory.read_text(encoding="utf-8"))
        hosts = document["pops"]["lab1"]["hosts"].values()
        for host, (ip, port) in zip(hosts, self.server.addresses):
            host["bmc"]["address"] = f"https://{ip}:{port}"
        write_yaml(inventory, document)

    def _told_by_dmi(self, name: str) -> dict[str, str]:
        return {"uuid": self.machines[name].uuid, "serial": self.machines[name].serial}

    def _boot(self, name: str) -> None:
        with self.machines[name].lock:
            self.machines[name].begin_post()
            self.machines[name].end_post()


@pytest.fixture(params=["dell", "hpe", "lenovo", "ami"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, request.param)
    yield made
    made.server.close()


def test_a_rollout_and_its_way_back(site: Site) -> None:
    world = site.world
    world.enter(tuning="snoop_and_queue")
    world.roll_all(world.mark("changing"))
    test = {name for batch in (FIRST, LAST) for name in world.at(batch)}
    assert site.modes == {name: "home" if name in test else "early" for name in NAMES}
    world.roll_back()
    assert (set(site.modes.values()), world.head.quarantined) == ({"early"}, {})
    assert {world.hosts.reboots(name) for name in test} == {2}
    assert [name for name in NAMES if site.changes(name) and name not in test] == []


def test_a_rollback_before_the_reboot_leaves_nothing_pending_whichever_login_is_refused(
    site: Site,
) -> None:
    world, real = site.world, site.real
    real._config = replace(real._config, bmc_threads=1)  # the one that refuses is the first
    world.enter()
    world.roll(LAST, until="reboot_hosts")
    assert all(site.machines[name].pending for name in world.at(LAST))
    bad, *well = sorted(world.at(LAST))
    site.machines[bad].faults.add("refuses")
    quarantined = world.roll_back()["quarantined"]
    assert [name for name, machine in site.machines.items() if machine.pending] == [bad]
    assert list(quarantined) == [bad] and well
    assert world.hosts.told("reboot") == []


def test_what_was_done_and_not_written_down_is_not_sent_again_on_either_way(site: Site) -> None:
    """Nor is it taken for somebody else's."""
    world = site.world
    world.enter()
    (host,) = world.at(FIRST)
    world.roll(FIRST, until="set_bios")
    _die_after(world, "BMC set", lambda: world.step("set_bios", FIRST))
    sent = site.changes(host)
    world.take_over()
    world.roll_all({"first_batch": FIRST, "end_batch": FIRST + 1})
    assert (site.modes[host], site.changes(host)) == ("home", sent)
    back = world.mark("rolling_back")["first_batch"]
    world.roll(back, until="set_bios")
    _die_after(world, "BMC set", lambda: world.step("set_bios", back))
    sent = site.changes(host)
    world.take_over()
    world.roll_back()
    assert (site.modes[host], world.head.quarantined) == ("early", {})
    assert site.changes(host) == sent


@pytest.mark.parametrize(
    ("site", "fault"),
    [("dell", "job_fails"), ("hpe", "ignores"), ("lenovo", "forgets"), ("ami", "ignores")],
    indirect=["site"],
)
def test_a_machine_that_does_not_do_it_is_as_it_was_in_the_end(site: Site, fault: str) -> None:
    world = site.world
    world.enter()
    (host,) = world.at(FIRST)
    site.machines[host].faults.add(fault)
    failed: list[str] = []
    for step in world.way(FIRST):
        result = world.step(step, FIRST)
        world.hosts.reboot()
        if result.get("waiting"):
            world.age(FIRST)
            result = world.step(step, FIRST)
        failed = result.get("failed", [])
        if failed:
            break
    assert failed == [host]
    site.machines[host].faults.clear()
    world.roll_back()
    assert (site.modes[host], world.head.quarantined) == ("early", {})


def _die_after(world: BiosWorld, effect: str, work: Callable[[], Any]) -> None:
    def die(moment: str) -> None:
        if moment == f"after {effect}":
            raise Died(moment)

    world.moments.at = die
    with pytest.raises(Died):
        work()
    world.moments.at = lambda moment: None


def _about_to_change(folder: Path) -> BiosWorld:
    world = BiosWorld(folder)
    world.enter(tuning="snoop_and_queue", batch_size=1)
    return world


def _changed(folder: Path) -> BiosWorld:
    """One host changed, one rebooted only, one whose BIOS is set and comes with the next boot."""
    world = _about_to_change(folder)
    world.roll_all({"first_batch": FIRST, "end_batch": LAST})
    world.roll(LAST, until="reboot_hosts")
    return world


def _change(world: BiosWorld) -> None:
    world.roll_all({**world.mark("changing"), "end_batch": LAST})


@pytest.mark.long
def test_a_batch_in_memory_is_ended_wherever_its_owner_dies(tmp_path: Path) -> None:
    for moment, world in at_every_moment(lambda name: _about_to_change(tmp_path / name), _change):
        (host,), (sham,) = world.at(FIRST), world.at(SHAM)
        assert world.batch(FIRST).finished and world.batch(SHAM).finished, moment
        assert (world.bmcs.mode(host), world.bmcs.mode(sham)) == ((HOME, None), (EARLY, None))
        assert world.hosts.tuned == {host}, moment
        # Sent once, and each host booted once for it.
        assert world.bmcs.sent == [(host, "set", {SNOOP: HOME})], moment
        assert (world.hosts.reboots(host), world.hosts.reboots(sham)) == (1, 1), moment
        assert _entries(world, host) == [world.rollout], moment
        _all_serve(world, moment)


@pytest.mark.long
def test_a_rollback_is_ended_wherever_its_owner_dies(tmp_path: Path) -> None:
    for moment, world in at_every_moment(
        lambda name: _changed(tmp_path / name), BiosWorld.roll_back
    ):
        (first,), (sham,), (last,) = world.at(FIRST), world.at(SHAM), world.at(LAST)
        assert world.head.state == "rolled_back", moment
        assert world.head.quarantined == {}, moment
        assert {world.bmcs.mode(name) for name in world.hosts.boot} == {(EARLY, None)}, moment
        assert world.hosts.tuned == set(), moment
        assert world.bmcs.sent_to(first, "set") == [{SNOOP: HOME}, {SNOOP: EARLY}], moment
        assert world.bmcs.sent_to(last, "cancel") == [{SNOOP: EARLY}], moment
        reboots = [world.hosts.reboots(name) for name in (first, sham, last)]
        # What the last one had pending was never in force.
        assert reboots == [2, 1, 0], moment
        assert [_entries(world, name) for name in (first, last)] == [[], []], moment
        _all_serve(world, moment)


@pytest.mark.long
def test_a_change_that_died_is_taken_back_wherever_that_was(tmp_path: Path) -> None:
    """What it had come to, and whether that was in force, only its record and its BMC tell."""

    def begin(name: str) -> BiosWorld:
        return _about_to_change(tmp_path / name)

    for moment, world in at_every_moment(begin, _change, afterwards=BiosWorld.roll_back):
        (host,) = world.at(FIRST)
        assert world.head.quarantined == {}, moment
        assert {world.bmcs.mode(name) for name in world.hosts.boot} == {(EARLY, None)}, moment
        assert world.hosts.tuned == set(), moment
        ways = {
            (): (0,),
            # One that was told to reboot, and did not, is rebooted all the same: it may do so yet.
            ("set", "cancel"): (0, 1),
            ("set", "set"): (2,),
        }
        assert world.hosts.reboots(host) in ways[tuple(sent for _, sent, _ in world.bmcs.sent)]
        assert _entries(world, host) == [], moment
        _all_serve(world, moment)


def _entries(world: BiosWorld, host: str) -> list[str]:
    return [entry.rollout for entry in load_journal(world.context, "lab1", host).entries]


def _all_serve(world: BiosWorld, moment: str) -> None:
    assert set(world.balancer.state.values()) == {"ready"}, moment
    assert world.hosts.not_ready == set(), moment
    assert world.hosts.disturbed == [], moment
