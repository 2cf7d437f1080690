# SPDX-License-Identifier: Apache-2.0
"""Rollouts whose BMCs are the lab's, over HTTPS; hosts and load balancer are in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgetune.bmc.bmcs import Bmcs
from edgetune.bmc.credentials import Login
from edgetune.hosts.result import HostResult
from edgetune.inventory import Host
from edgetune.rollout.steps.adopt_host import adopt_host
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.set_bios import set_bios
from lab.bmc import Machine, Server, Service, serve
from lab.bmc.certificates import make_certificates
from tests.support.builders import write_yaml
from tests.support.world import BiosWorld, Died, Moments

pytestmark = pytest.mark.slow

FIRST, LAST = 0, 2
NAMES = [f"e{i:03d}" for i in range(8)]
LOGIN = Login("edgetune", "pw")


class _Asked:
    """The real BMCs; each change of theirs is a moment at which a test may die."""

    def __init__(self, real: Bmcs, moments: Moments) -> None:
        self._real, self._moments = real, moments

    def ask(
        self,
        hosts: Sequence[Host],
        verb: str,
        request: Callable[[Host], Mapping[str, Any]],
        timeout: float | None = None,
        permit: Callable[[], None] = lambda: None,
        refusals: int = 1,
    ) -> dict[str, HostResult]:
        with self._moments.around(f"BMC {verb}"):
            return self._real.ask(hosts, verb, request, timeout, permit, refusals)


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


def test_a_rollback_before_the_reboot_leaves_nothing_pending(site: Site) -> None:
    world = site.world
    world.enter()
    world.roll(LAST, until=reboot_hosts)
    assert all(site.machines[name].pending for name in world.at(LAST))
    world.roll_back()
    assert not any(machine.pending for machine in site.machines.values())
    assert world.hosts.told("reboot") == []


def test_a_bmc_that_refuses_a_login_keeps_no_other_from_its_way_back(site: Site) -> None:
    world, real = site.world, site.real
    real._config = replace(real._config, bmc_threads=1)  # the one that refuses is the first
    world.enter()
    world.roll(LAST, until=reboot_hosts)
    bad, *well = sorted(world.at(LAST))
    site.machines[bad].faults.add("refuses")
    quarantined = world.roll_back()["quarantined"]
    assert [name for name in well if site.machines[name].pending] == []
    assert list(quarantined) == [bad] and well


def test_what_was_taken_back_and_not_written_down_is_not_taken_for_somebody_else_s(
    site: Site,
) -> None:
    world = site.world
    world.enter()
    world.roll_all({"first_batch": FIRST, "end_batch": FIRST + 1})
    (host,) = world.at(FIRST)
    back = world.mark("rolling_back")["first_batch"]
    world.roll(back, until=set_bios)
    _die_after(world, "BMC set", lambda: world.step(set_bios, back))
    sent = site.changes(host)
    world.take_over()
    world.roll_back()
    assert (site.modes[host], world.head.quarantined) == ("early", {})
    assert site.changes(host) == sent


def test_what_was_set_and_not_written_down_is_not_sent_again(site: Site) -> None:
    world = site.world
    world.enter()
    (host,) = world.at(FIRST)
    world.roll(FIRST, until=set_bios)
    _die_after(world, "BMC set", lambda: world.step(set_bios, FIRST))
    sent = site.changes(host)
    world.take_over()
    world.roll_all({"first_batch": FIRST, "end_batch": FIRST + 1})
    assert (site.modes[host], site.changes(host)) == ("home", sent)


@pytest.mark.parametrize("fault", ["job_fails", "ignores", "forgets"])
def test_a_machine_that_does_not_do_it_is_as_it_was_in_the_end(site: Site, fault: str) -> None:
    world = site.world
    world.enter()
    (host,) = world.at(FIRST)
    site.machines[host].faults.add(fault)
    failed = False
    for step in world.way(FIRST):
        result = world.step(step, FIRST)
        world.hosts.reboot()
        if result.get("waiting"):
            world.age(FIRST)
            result = world.step(step, FIRST)
        failed = failed or result.get("failed") == [host]
        if failed:
            break
    assert failed
    site.machines[host].faults.clear()
    world.roll_back()
    assert (site.modes[host], world.head.quarantined) == ("early", {})


def test_a_machine_that_was_replaced_is_left_alone_and_adopted(site: Site) -> None:
    world = site.world
    world.enter()
    world.roll_all({"first_batch": FIRST, "end_batch": FIRST + 1})
    (host,) = world.at(FIRST)
    world.hosts.machine = {name: world.hosts.told_by_dmi(name) for name in NAMES}
    site.machines[host].name = "another"
    sent = site.changes(host)
    (reason,) = world.roll_back()["quarantined"].values()
    assert f"the machine is {site.machines[host].uuid}, not" in reason
    assert (site.modes[host], site.changes(host)) == ("home", sent)
    adopt_host(world.context, world.rollout, host)
    assert (world.head.quarantined, world.balancer.state[host]) == ({}, "ready")


def _die_after(world: BiosWorld, effect: str, work: Callable[[], Any]) -> None:
    def die(moment: str) -> None:
        if moment == f"after {effect}":
            raise Died(moment)

    world.moments.at = die
    with pytest.raises(Died):
        work()
    world.moments.at = lambda moment: None
