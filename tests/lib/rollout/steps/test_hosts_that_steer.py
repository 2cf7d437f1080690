# SPDX-License-Identifier: Apache-2.0
"""Rollouts over hosts that steer their own traffic: one that does not answer is one host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.documents.plan import Plan, Proof
from edgetune.errors import ServerError
from edgetune.rollout.in_service import hosts_in_service
from edgetune.rollout.lease import as_owner
from edgetune.rollout.preflight import Subject, check_load_balancer, check_machines
from edgetune.rollout.readiness import set_ready
from edgetune.traffic import Agents, OnHosts, Server
from edgetune.traffic.on_hosts import Answer, Order
from tests.support.builders import inventory_document
from tests.support.scenarios import Scenario, scenarios
from tests.support.world import Balancer, World

SILENT = "no route to host"


class Steering(Balancer):
    """Hosts in ``silent`` tell nothing and do nothing; those in ``refusing`` do nothing."""

    silent: frozenset[str] = frozenset()
    refusing: frozenset[str] = frozenset()

    def servers(self) -> Mapping[str, Server]:
        return {name: self._as_told(own) for name, own in super().servers().items()}

    def _as_told(self, own: Server) -> Server:
        own = replace(own, address="", port=0, checked=False, told_by_host=True)
        if own.name in self.silent:
            return replace(own, withdrawn="", up=False, sessions=None, unknown=SILENT)
        return own

    def _set(self, server: str, state: str) -> None:
        if server in self.silent | self.refusing:
            raise ServerError(f"{server}: {SILENT}")
        super()._set(server, state)


class OwnWorld(World):
    """Its plan knows of each host that it is drained over the SSH by which it is changed."""

    def _planned(self, folder: Path, disruption: str = "", **planned: Any) -> Plan:
        made = super()._planned(folder, disruption, **planned)
        proofs = {name: Proof("", "host", "") for name in made.machines}
        return replace(made, machines=proofs).signed()


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = OwnWorld(tmp_path)
    for state in ("baseline", "changing"):
        made.mark(state)
    document = inventory_document()
    document["pops"]["lab1"]["load_balancer"] = {
        "driver": "flag",
        "file": "/etc/edgetune/drained",
        "checks": "none",
    }
    made.change_inventory(document)
    made.balancer.__class__ = Steering
    return made


class SteeringMoves(Scenario):
    def becomes_ready(self, hosts: list[str]) -> None:
        """These cannot be told that they are ready."""
        assert set_ready(as_owner(self.world.context, self.world.rollout), hosts, ready=True)


@pytest.mark.parametrize("case", scenarios(__file__))
def test_one_that_does_not_answer_is_one_host(case: Any, world: World) -> None:
    SteeringMoves(world).play(case)


def steering(world: World) -> Steering:
    assert isinstance(world.balancer, Steering)
    return world.balancer


def silence(world: World, host: str) -> None:
    steering(world).silent = frozenset({host})
    world.hosts.unreachable.add(host)


def test_the_machine_that_tells_is_the_one_that_is_changed(world: World) -> None:
    pop = as_owner(world.context, world.rollout).pop
    subject = Subject(world.context, pop, pop.hosts)
    assert not list(check_machines(subject))
    proofs, _ = subject.proven
    assert {own.proven_by for own in proofs.values()} == {"host"}


def test_a_silent_host_is_not_in_service_and_is_told(world: World) -> None:
    silence(world, "e003")
    pop = as_owner(world.context, world.rollout).pop
    subject = Subject(world.context, pop, pop.hosts)
    assert "e003" not in hosts_in_service(pop, subject.servers)
    found = {each.host: each.what for each in check_load_balancer(subject)}
    assert found == {"e003": f"nobody can tell how it stands: {SILENT}"}


class Refusing(Agents):
    """Hosts that answer; e002 refuses changes. They were ``asked`` these orders."""

    servers = ("e001", "e002", "e003")

    def __init__(self) -> None:
        self.asked: list[Order] = []

    def ask(self, servers: Sequence[str], order: Order) -> Mapping[str, Answer]:
        self.asked.append(order)
        how = "flag" if order.do == "withdraw" else ""
        own = {name: Server(name, how, True, 0, told_by_host=True) for name in servers}
        return {n: Answer(s, "read-only" if n == "e002" else "") for n, s in own.items()}


class Flagged(OnHosts):
    by = "flag"
    advice = "have the file writable"


def test_hosts_are_told_under_the_epoch_of_the_rollout(world: World) -> None:
    agents = Refusing()
    world.context.load_balancer = lambda pop: Flagged(agents, {})  # type: ignore[method-assign]
    opened = as_owner(world.context, world.rollout)
    opened.load_balancer.withdraw("e001")
    opened.load_balancer.servers()
    assert [(own.do, own.epoch) for own in agents.asked] == [
        ("withdraw", world.epoch),
        ("look", 0),
    ]


def test_a_host_that_refuses_and_is_left_out_blocks_no_plan(world: World) -> None:
    driver = Flagged(Refusing(), {})
    world.context.load_balancer = lambda pop: driver  # type: ignore[method-assign]
    pop = as_owner(world.context, world.rollout).pop
    for names, told in ((("e001", "e002"), ["e002: read-only"]), (("e001", "e003"), [])):
        subject = Subject(world.context, pop, [pop.host(name) for name in names])
        assert [own.what for own in check_load_balancer(subject)] == told
