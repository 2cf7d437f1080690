# SPDX-License-Identifier: Apache-2.0
"""Which machine is it: what the load balancer and what SSH tell of it are compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.documents.host import HostFacts
from edgetune.documents.plan import Proof
from edgetune.documents.reading import taken
from edgetune.hosts.result import HostResult
from edgetune.inventory import UNTOLD, Pop
from edgetune.rollout.identity import BY_INTERFACE, BY_INVENTORY, prove_machines, strangers
from edgetune.traffic import Server
from tests.support.builders import pop

UUID = "4c4c4544-0058-4a10-8031-b6c04f483432"


class Site:
    """A PoP of two hosts, what its load balancer tells, and what its hosts tell."""

    def __init__(self, folder: Path) -> None:
        self.pop: Pop = pop(folder, 2)
        self.servers = {
            host.server: Server(host.server, "", True, 0, host.address, 80)
            for host in self.pop.hosts
        }
        self.facts: dict[str, dict[str, Any]] = {}
        for host in self.pop.hosts:
            self.has(host.name, host.address)

    def has(self, name: str, *addresses: str) -> None:
        told = [{"interface": "eth0", "address": address} for address in addresses]
        known = {"boot_id": f"boot of {name}", "machine": {"uuid": "", "serial": ""}}
        self.facts[name] = {**known, "addresses": told}

    def sends(self, name: str, address: str, port: int = 80) -> None:
        self.servers[name] = replace(self.servers[name], address=address, port=port)

    def vouch(self, name: str, address: str) -> None:
        hosts = [
            replace(host, server_address=address) if host.name == name else host
            for host in self.pop.hosts
        ]
        self.pop = replace(self.pop, hosts=tuple(hosts))

    def checks(self, what: str) -> None:
        balancer = replace(self.pop.load_balancer, checks=what)
        self.pop = replace(self.pop, load_balancer=balancer)

    def prove(self) -> tuple[dict[str, Proof], dict[str, str]]:
        known = {name: taken(HostFacts, told) for name, told in self.facts.items()}
        return prove_machines(self.pop, self.pop.hosts, self.servers, known)

    @property
    def problems(self) -> dict[str, str]:
        return self.prove()[1]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_an_address_of_its_own_interfaces_proves_a_host(site: Site) -> None:
    site.has("e000", "127.0.0.1", "2001:DB8:0::1")
    site.sends("e000", "2001:db8::1")
    site.facts["e000"]["machine"]["uuid"] = UUID.upper()
    proofs, problems = site.prove()
    assert problems == {}
    assert proofs["e000"] == Proof("2001:db8::1", BY_INTERFACE, UUID)


def test_exchanged_hosts_are_refused_and_both_sides_named(site: Site) -> None:
    site.sends("e000", "127.0.9.2")
    site.sends("e001", "127.0.9.1")
    assert site.problems == {
        "e000": (
            "the load balancer sends requests for e000 to 127.0.9.2, which e001 has; "
            "127.0.9.1, asked over SSH, has 127.0.9.1"
        ),
        "e001": (
            "the load balancer sends requests for e001 to 127.0.9.1, which e000 has; "
            "127.0.9.2, asked over SSH, has 127.0.9.2"
        ),
    }


def test_the_inventory_vouches_for_no_address_of_another_host(site: Site) -> None:
    site.sends("e000", "127.0.9.2")
    site.vouch("e000", "127.0.9.2")
    assert "to 127.0.9.2, which e001 has" in site.problems["e000"]


def test_a_foreign_address_is_refused_until_the_inventory_vouches_for_it(site: Site) -> None:
    site.sends("e000", "203.0.113.5")
    assert "behind NAT, server_address: 203.0.113.5 in the inventory" in site.problems["e000"]
    site.vouch("e000", "203.0.113.5")
    proofs, problems = site.prove()
    assert problems == {}
    assert proofs["e000"].proven_by == BY_INVENTORY


def test_an_address_that_many_hosts_have_proves_nothing(site: Site) -> None:
    """As anycast addresses and those of direct server return do, and 127.0.0.1."""
    for name, own in (("e000", "127.0.9.1"), ("e001", "127.0.9.2")):
        site.has(name, own, "198.51.100.7")
    site.sends("e000", "198.51.100.7")
    assert "which e001 have as well; server_address" in site.problems["e000"]
    site.vouch("e000", "198.51.100.7")
    proofs, problems = site.prove()
    assert (problems, proofs["e000"].proven_by) == ({}, BY_INVENTORY)


def test_a_server_without_address_needs_the_word_of_the_inventory(site: Site) -> None:
    site.sends("e000", "", 0)
    assert f"tells no address of e000; server_address: {UNTOLD}" in site.problems["e000"]
    site.vouch("e000", UNTOLD)
    assert site.problems == {}


def test_what_the_inventory_says_has_to_be_so(site: Site) -> None:
    site.vouch("e000", "203.0.113.5")
    assert site.problems["e000"] == (
        "server_address: is 203.0.113.5, and the load balancer sends its requests to 127.0.9.1"
    )
    site.vouch("e000", UNTOLD)
    assert "server_address: is none, and" in site.problems["e000"]


def test_two_servers_of_one_address_are_one_machine(site: Site) -> None:
    for name in ("e000", "e001"):
        site.sends(name, "203.0.113.5")
        site.vouch(name, "203.0.113.5")
    assert site.problems == {
        "e001": "the load balancer sends requests for e001 and e000 to 203.0.113.5, port 80"
    }
    site.sends("e001", "203.0.113.5", 81)
    assert site.problems == {}


def test_two_hosts_of_one_boot_are_one_machine(site: Site) -> None:
    site.facts["e001"]["boot_id"] = site.facts["e000"]["boot_id"]
    assert site.problems["e001"].startswith("is the machine that answers for e000, too")


@pytest.mark.parametrize("addresses", [None, []])
def test_a_host_that_tells_no_address_is_not_proven(site: Site, addresses: Any) -> None:
    site.facts["e000"]["addresses"] = addresses
    assert "asked over SSH, has no address that it tells" in site.problems["e000"]


def test_a_server_without_a_check_needs_the_word_of_the_inventory(site: Site) -> None:
    site.servers["e000"] = replace(site.servers["e000"], checked=False)
    assert "does not check the health of e000; load_balancer.checks: none" in site.problems["e000"]
    site.checks("none")
    assert site.problems == {}


def test_a_host_that_nothing_can_prove_is_refused(site: Site) -> None:
    site.sends("e000", "203.0.113.5")
    site.vouch("e000", "203.0.113.5")
    site.checks("none")
    assert site.problems == {
        "e000": (
            "its address cannot be compared, and load_balancer.checks is none: nothing can prove it"
        )
    }


def _strangers(site: Site, proofs: dict[str, Proof], way_back: bool = False) -> dict[str, str]:
    answers = {name: HostResult(name, data=known) for name, known in site.facts.items()}
    return strangers(site.pop, list(answers), site.servers, proofs, answers, way_back)


def test_hosts_as_the_plan_saw_them_are_no_strangers(site: Site) -> None:
    proofs, _ = site.prove()
    assert _strangers(site, proofs) == {}
    assert _strangers(site, {}) == {}


def test_a_server_that_was_moved_since_the_plan_is_a_stranger(site: Site) -> None:
    proofs, _ = site.prove()
    site.sends("e000", "127.0.9.9")
    (why,) = _strangers(site, proofs).values()
    assert why.endswith("e000 to 127.0.9.9, and to 127.0.9.1 when the plan was made")


def test_a_host_that_was_renumbered_since_the_plan_is_no_stranger(site: Site) -> None:
    proofs, _ = site.prove()
    site.sends("e000", "127.0.9.9")
    site.has("e000", "127.0.9.9")
    assert _strangers(site, proofs) == {}


def _with_uuid(site: Site) -> dict[str, Proof]:
    site.facts["e000"]["machine"]["uuid"] = UUID
    return site.prove()[0]


def test_a_rollback_needs_evidence_against_a_host(site: Site) -> None:
    """A change of the network may have taken the address that the load balancer knows."""
    proofs = _with_uuid(site)
    site.facts["e000"]["addresses"] = []
    assert _strangers(site, proofs, way_back=True) == {}
    assert list(_strangers(site, proofs)) == ["e000"]
    site.facts["e001"]["addresses"] = None
    assert _strangers(site, proofs, way_back=True) == {}
    site.facts["e000"]["machine"]["uuid"] = ""
    assert _strangers(site, proofs, way_back=True) == {}
    site.facts["e000"]["machine"]["uuid"] = UUID.replace("4c", "5d")
    assert list(_strangers(site, proofs, way_back=True)) == ["e000"]


def test_a_rollback_of_version_0_6_compares_nothing_that_its_plan_did_not(site: Site) -> None:
    site.sends("e000", "203.0.113.5")
    assert _strangers(site, {}, way_back=True) == {}
    assert list(_strangers(site, {})) == ["e000"]


def test_a_machine_without_uuid_that_has_another_address_is_a_stranger(site: Site) -> None:
    proofs, _ = site.prove()
    site.has("e000", "127.0.9.2")
    assert list(_strangers(site, proofs, way_back=True)) == ["e000"]


def test_a_machine_that_was_exchanged_since_the_plan_is_a_stranger(site: Site) -> None:
    proofs, _ = site.prove()
    site.has("e000", "127.0.9.2")
    assert list(_strangers(site, proofs)) == ["e000"]
    assert list(_strangers(site, {})) == ["e000"]


def test_a_board_that_was_replaced_since_the_plan_is_a_stranger(site: Site) -> None:
    site.facts["e000"]["machine"]["uuid"] = UUID
    proofs, _ = site.prove()
    site.facts["e000"]["machine"]["uuid"] = UUID.replace("4c", "5d")
    (why,) = _strangers(site, proofs).values()
    assert why.startswith("127.0.9.1 leads to machine 5d")
    site.facts["e000"]["machine"]["uuid"] = ""
    assert "without UUID" in _strangers(site, proofs)["e000"]


def test_a_silent_host_is_no_stranger(site: Site) -> None:
    proofs, _ = site.prove()
    silent = {"e000": HostResult("e000", error="timed out", reason="unreachable")}
    assert strangers(site.pop, ["e000"], site.servers, proofs, silent) == {}
