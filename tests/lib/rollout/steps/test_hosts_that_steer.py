# SPDX-License-Identifier: Apache-2.0
"""Rollouts over hosts that steer their own traffic: one that does not answer is one host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.documents.plan import Plan, Proof
from edgetune.errors import DrainError, ServerError
from edgetune.rollout.in_service import hosts_in_service
from edgetune.rollout.lease import as_owner
from edgetune.rollout.preflight import Subject, check_load_balancer, check_machines
from edgetune.rollout.readiness import set_ready
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.undrain_hosts import undrain_hosts
from edgetune.traffic import Agents, OnHosts, Server
from edgetune.traffic.on_hosts import Answer, Order
from tests.support.builders import inventory_document
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


def steering(world: World) -> Steering:
    assert isinstance(world.balancer, Steering)
    return world.balancer


def silence(world: World, host: str) -> None:
    steering(world).silent = frozenset({host})
    world.hosts.unreachable.add(host)


def test_such_hosts_are_rolled_and_taken_back(world: World) -> None:
    world.roll(0)
    assert set(world.at(0).values()) == {"done"}
    world.roll_back()
    assert set(steering(world).state.values()) == {"ready"}


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


def test_a_batch_does_not_begin_with_a_host_that_tells_nothing(world: World) -> None:
    (host,) = world.at(0)
    steering(world).silent = frozenset({host})
    with pytest.raises(DrainError, match=SILENT):
        world.step(begin_drain, 0)
    assert world.batch(0).hosts[host].lb_before is None, "what it was before is not known"


def test_a_host_that_falls_silent_fails_its_batch_after_a_while(world: World) -> None:
    (host,) = world.at(0)
    steering(world).sessions[host] = 3
    steering(world).clients = False
    world.step(begin_drain, 0)
    steering(world).silent = frozenset({host})
    assert world.step(check_drained, 0)["failed"] == []
    world.age(0)
    result = world.step(check_drained, 0)
    assert result["failed"] == [host] and SILENT in result["error"]
    assert host not in world.hosts.not_ready


def test_nothing_is_done_to_a_host_that_was_not_seen_out(world: World) -> None:
    (host,) = world.at(0)
    world.roll(0, until=apply_tuning)
    steering(world).silent = frozenset({host})
    with pytest.raises(DrainError, match=SILENT):
        world.step(apply_tuning, 0)
    assert host not in world.hosts.tuned


def test_a_host_that_cannot_be_let_in_again_fails_and_the_others_go_on(world: World) -> None:
    (host,) = world.at(0)
    world.roll(0, until=undrain_hosts)
    steering(world).refusing = frozenset({host})
    result = world.step(undrain_hosts, 0)
    assert result["failed"] == [host] and SILENT in result["error"]


def test_in_a_rollback_a_silent_host_is_quarantined_and_not_called_out(world: World) -> None:
    (host,) = world.at(0)
    world.roll(0)
    silence(world, host)
    batch = world.mark("rolling_back")["first_batch"]
    world.step(begin_drain, batch)
    assert world.batch(batch).hosts[host].step == "draining"
    world.age(batch)
    world.step(check_drained, batch)
    assert world.at(batch) == {host: "quarantined"}
    world.step(undrain_hosts, batch)
    why = world.head.quarantined[host]
    assert why.reason.startswith(SILENT) and not why.out_of_service
    assert SILENT in why.seen
    world.mark("rolled_back")


def test_in_a_rollback_a_host_that_refuses_is_quarantined(world: World) -> None:
    (host,) = world.at(0)
    world.roll(0)
    steering(world).refusing = frozenset({host})
    batch = world.mark("rolling_back")["first_batch"]
    world.step(begin_drain, batch)
    world.age(batch)
    world.step(check_drained, batch)
    assert world.at(batch) == {host: "quarantined"}
    assert not world.head.quarantined[host].out_of_service
    assert set_ready(as_owner(world.context, world.rollout), [host], ready=True)


def test_a_host_that_answers_late_in_a_rollback_comes_back_as_it_was(world: World) -> None:
    (host,) = world.at(0)
    world.roll(0)
    silence(world, host)
    batch = world.mark("rolling_back")["first_batch"]
    world.step(begin_drain, batch)
    steering(world).silent, steering(world).state[host] = frozenset(), "drain"
    world.hosts.unreachable.clear()
    world.step(check_drained, batch)
    assert world.batch(batch).hosts[host].lb_before == "drain", "somebody had it out"
