# SPDX-License-Identifier: Apache-2.0
"""Hosts that steer their own traffic are told as the machines that they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from edgetune.net.traffic import Agents, OnHosts, Server
from edgetune.net.traffic.on_hosts import Answer, Order
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.planning.preflight import (
    Subject,
    check_load_balancer,
    check_machines,
)
from tests.lib.rollout.steps.worlds import steering
from tests.support.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return steering({}, tmp_path)


def test_the_machine_that_tells_is_the_one_that_is_changed(world: World) -> None:
    pop = as_owner(world.context, world.rollout).pop
    subject = Subject(world.context, pop, pop.hosts)
    assert not list(check_machines(subject))
    proofs, _ = subject.proven
    assert {own.proven_by for own in proofs.values()} == {"host"}


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
