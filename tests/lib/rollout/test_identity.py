# SPDX-License-Identifier: Apache-2.0
"""Which machine is it: what the load balancer and what SSH tell of it are compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.documents.host import HostFacts
from edgetune.base.documents.plan import Proof
from edgetune.base.documents.reading import taken
from edgetune.net.traffic import Server
from edgetune.rollout.hosts.identity import (
    BY_INTERFACE,
    BY_INVENTORY,
    is_another,
    prove_machines,
)
from tests.support.builders import pop
from tests.support.cases import cases

UUID = "4c4c4544-0058-4a10-8031-b6c04f483432"
OTHER_UUID = UUID.replace("4c", "5d")
NAT = "203.0.113.5"


class Site:
    """A PoP of two hosts, what its load balancer tells, and what its hosts tell."""

    def __init__(self, folder: Path) -> None:
        self.pop = pop(folder, 2)
        self.servers = {
            host.server: Server(host.server, "", True, 0, host.address, 80)
            for host in self.pop.hosts
        }
        self.facts: dict[str, dict[str, Any]] = {}
        for host in self.pop.hosts:
            machine = {"uuid": "", "serial": ""}
            self.facts[host.name] = {"boot_id": f"boot of {host.name}", "machine": machine}
            self.has(host.name, host.address)

    def has(self, name: str, *addresses: str) -> None:
        told = [{"interface": "eth0", "address": address} for address in addresses]
        self.facts[name]["addresses"] = told

    def is_machine(self, uuid: str) -> None:
        """What e000 tells of itself."""
        self.facts["e000"]["machine"]["uuid"] = uuid

    def sends(self, name: str, address: str, port: int = 80) -> None:
        self.servers[name] = replace(self.servers[name], address=address, port=port)

    def vouch(self, name: str, address: str) -> None:
        hosts = [
            replace(host, server_address=address) if host.name == name else host
            for host in self.pop.hosts
        ]
        self.pop = replace(self.pop, hosts=tuple(hosts))

    def change(self, told: dict[str, Any]) -> None:
        """As a step of a case in ``identity.yaml`` says."""
        for name, addresses in told.get("has", {}).items():
            self.has(name, *addresses)
        for name, (address, port) in told.get("sends", {}).items():
            self.sends(name, address, port)
        for name, address in told.get("vouch", {}).items():
            self.vouch(name, address)
        for name, facts in told.get("facts", {}).items():
            self.facts[name].update(facts)
        if "unchecked" in told:
            name = told["unchecked"]
            self.servers[name] = replace(self.servers[name], checked=False)
        if "checks" in told:
            balancer = replace(self.pop.load_balancer, checks=told["checks"])
            self.pop = replace(self.pop, load_balancer=balancer)

    def prove(self) -> tuple[dict[str, Proof], dict[str, str]]:
        known = {name: taken(HostFacts, told) for name, told in self.facts.items()}
        return prove_machines(self.pop, self.pop.hosts, self.servers, known)

    def strangers(self, proofs: dict[str, Proof], way_back: bool = False) -> dict[str, str]:
        known = {name: taken(HostFacts, told) for name, told in self.facts.items()}
        found = {
            own.name: is_another(
                own, self.servers[own.server], proofs.get(own.name), known[own.name], way_back
            )
            for own in self.pop.hosts
        }
        return {name: why for name, why in found.items() if why}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_an_address_of_its_own_interfaces_proves_a_host(site: Site) -> None:
    site.has("e000", "127.0.0.1", "2001:DB8:0::1")
    site.sends("e000", "2001:db8::1")
    site.is_machine(UUID.upper())
    proofs, problems = site.prove()
    assert problems == {}
    assert proofs["e000"] == Proof("2001:db8::1", BY_INTERFACE, UUID)


@pytest.mark.parametrize("case", cases(Path(__file__).with_name("identity.yaml")))
def test_what_proves_a_host_and_what_does_not(site: Site, case: list[dict[str, Any]]) -> None:
    for told in case:
        site.change(told)
        proofs, problems = site.prove()
        expected = told.get("problems", {})
        assert problems.keys() == expected.keys()
        for name, problem in expected.items():
            if problem.startswith("... "):
                assert problem[4:] in problems[name]
            else:
                assert problems[name].startswith(problem)
        if "proven" in told:
            assert proofs["e000"].proven_by == BY_INVENTORY


def test_a_server_that_was_moved_since_the_plan_is_a_stranger_unless_its_host_was_renumbered(
    site: Site,
) -> None:
    proofs, _ = site.prove()
    assert site.strangers(proofs) == site.strangers({}) == {}
    site.sends("e000", "127.0.9.9")
    (why,) = site.strangers(proofs).values()
    assert why.endswith("e000 to 127.0.9.9, and to 127.0.9.1 when the plan was made")
    site.has("e000", "127.0.9.9")
    assert site.strangers(proofs) == {}


def test_a_rollback_needs_evidence_against_a_host(site: Site) -> None:
    """A change of the network may have taken the address that the load balancer knows."""
    site.is_machine(UUID)
    proofs, _ = site.prove()
    site.facts["e000"]["addresses"] = []
    assert site.strangers(proofs, way_back=True) == {}
    assert list(site.strangers(proofs)) == ["e000"]
    site.facts["e001"]["addresses"] = None
    assert site.strangers(proofs, way_back=True) == {}
    site.is_machine("")
    assert site.strangers(proofs, way_back=True) == {}
    site.is_machine(OTHER_UUID)
    assert list(site.strangers(proofs, way_back=True)) == ["e000"]


def test_a_rollback_of_version_0_6_compares_nothing_that_its_plan_did_not(site: Site) -> None:
    site.sends("e000", NAT)
    assert site.strangers({}, way_back=True) == {}
    assert list(site.strangers({})) == ["e000"]


def test_a_machine_that_was_exchanged_since_the_plan_is_a_stranger(site: Site) -> None:
    proofs, _ = site.prove()
    site.has("e000", "127.0.9.2")
    for known, way_back in ((proofs, False), ({}, False), (proofs, True)):
        assert list(site.strangers(known, way_back)) == ["e000"]


def test_a_board_that_was_replaced_since_the_plan_is_a_stranger(site: Site) -> None:
    site.is_machine(UUID)
    proofs, _ = site.prove()
    site.is_machine(OTHER_UUID)
    (why,) = site.strangers(proofs).values()
    assert why.startswith("127.0.9.1 leads to machine 5d")
    site.is_machine("")
    assert "without UUID" in site.strangers(proofs)["e000"]
