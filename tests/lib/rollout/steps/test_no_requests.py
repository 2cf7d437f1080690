# SPDX-License-Identifier: Apache-2.0
"""Hosts that get no requests although nobody withdrew them: a rollout neither counts nor admits
them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgetune.errors import RefusedError
from edgetune.rollout.in_service import hosts_in_service, needs_room
from edgetune.rollout.preflight import Subject, refuse_unfit, unfit_hosts
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.undrain_hosts import undrain_hosts
from edgetune.traffic.driver import BACKUP
from edgetune.traffic.drivers.haproxy import Haproxy
from tests.support.named_services import services, who_gets
from tests.support.real_haproxy import CLIENTS, RealHaproxy, needs_haproxy, running
from tests.support.world import EmptyWorld, World, changing

_CHECK = "check inter 50ms fall 1 rise 1"
HOSTS = [f"e{number:03d}" for number in range(8)]


@contextmanager
def behind_haproxy(world: World) -> Iterator[RealHaproxy]:
    """The hosts of a world as servers of a real HAProxy, with the addresses that they have."""
    with services(world.balancer.addresses) as behind:
        for name, own in behind.items():
            own.health = lambda name=name: 503 if name in world.hosts.not_ready else 200
        servers = [f"server {name} {own.place} {_CHECK}" for name, own in behind.items()]
        with running([("edges", ["option httpchk GET /health", *servers])], CLIENTS) as haproxy:
            world.context.load_balancer = lambda pop: haproxy.driver()  # type: ignore[method-assign]
            yield haproxy


def _weigh(haproxy: RealHaproxy, *hosts: str) -> None:
    for name in hosts:
        assert haproxy.ask(f"set server edges/{name} weight 0") == "\n"


class TestOverHaproxy:
    pytestmark = needs_haproxy

    def test_of_8_hosts_those_2_count_that_get_all_requests(self, tmp_path: Path) -> None:
        world = changing(tmp_path, disruption="drain")
        with behind_haproxy(world) as haproxy:
            _weigh(haproxy, *HOSTS[2:])
            pop, servers = world.context.inventory.pop("lab1"), haproxy.driver().servers()
            got = who_gets(haproxy.folder / "clients", HOSTS)
            assert got == {"e000", "e001"}
            assert hosts_in_service(pop, servers) == needs_room(pop, servers) == got

    @pytest.mark.parametrize("left", [4, 1], ids=["4 of 8 must serve", "the only one"])
    def test_no_host_is_drained_that_the_floor_or_all_clients_need(
        self, tmp_path: Path, left: int
    ) -> None:
        world = changing(tmp_path, disruption="drain")
        (host,) = world.at(0)
        with behind_haproxy(world) as haproxy:
            others = [name for name in HOSTS if name != host]
            _weigh(haproxy, *others[left - 1 :])
            got = who_gets(haproxy.folder / "clients", HOSTS)
            assert host in got and len(got) == left
            told = f"draining {host} would leave {left - 1} hosts in service, 4 must stay"
            with pytest.raises(RefusedError, match=told):
                world.step(begin_drain, 0)
            assert who_gets(haproxy.folder / "clients", HOSTS) == got

    def test_a_host_without_weight_is_drained_and_put_back_without_weight(
        self, tmp_path: Path
    ) -> None:
        """Though HAProxy forgets the weight in between, as it does when it is reloaded."""
        world = changing(tmp_path, disruption="drain")
        (host,) = world.at(0)
        with behind_haproxy(world) as haproxy:
            _weigh(haproxy, host)
            world.step(begin_drain, 0)
            haproxy.ask(f"set server edges/{host} weight 100%")
            while world.at(0) == {host: "draining"}:
                assert world.step(check_drained, 0)["failed"] == []
            for step in world.way(0)[2:]:
                world.step(step, 0)
            assert world.at(0) == {host: "done"}
            assert who_gets(haproxy.folder / "clients", HOSTS) == {*HOSTS} - {host}


def test_a_host_that_gets_no_requests_needs_no_room_and_is_put_back(tmp_path: Path) -> None:
    world = changing(tmp_path, disruption="drain")
    (host,) = world.at(0)
    world.balancer.idle = dict.fromkeys(HOSTS, "weight 0")
    world.roll(0)
    assert world.at(0) == {host: "done"}
    assert world.balancer.log == [(host, "drain"), (host, "maint"), (host, "ready")]


def test_a_host_that_served_and_gets_no_requests_afterwards_is_not_back(tmp_path: Path) -> None:
    world = changing(tmp_path, disruption="drain")
    (host,) = world.at(0)
    world.roll(0, until=undrain_hosts)
    world.balancer.idle[host] = "weight 0"
    told = world.step(undrain_hosts, 0)
    why = "the load balancer has it ready, and sends it no requests: weight 0"
    assert told["error"] == f"{host}: was put back, and {why}"
    world.balancer.idle[host] = BACKUP
    assert world.step(undrain_hosts, 0)["done"] == [host], "one that waits as a backup is back"


def test_a_host_that_somebody_withdraws_when_it_is_put_back_is_told_in_true_words(
    tmp_path: Path,
) -> None:
    world = changing(tmp_path, disruption="drain")
    (host,) = world.at(0)
    world.roll(0, until=undrain_hosts)
    world.balancer._set = lambda server, state: None  # type: ignore[method-assign]
    told = world.step(undrain_hosts, 0)
    assert told["error"] == f"{host}: was put back, and the load balancer has it maint"


def _refusal(world: EmptyWorld) -> str:
    pop = world.context.inventory.pop("lab1")
    with pytest.raises(RefusedError) as raised:
        refuse_unfit(Subject(world.context, pop, pop.hosts))
    return str(raised.value)


def test_a_plan_is_refused_for_hosts_that_get_no_requests(tmp_path: Path) -> None:
    """They cannot be compared."""
    world = EmptyWorld(tmp_path)
    world.balancer.idle = {"e001": "weight 0", "e002": "backup", "e003": "backup"}
    world.balancer.state["e003"] = "drain"
    refusal = _refusal(world)
    has = "the load balancer has it"
    for host, why in (("e001", "weight 0"), ("e002", "backup")):
        assert f"{host}: {has} ready, and sends it no requests: {why} -> bring it back" in refusal
    assert f"e003: {has} drain -> bring it back" in refusal


def test_a_plan_is_refused_where_an_agent_could_let_drained_hosts_in(tmp_path: Path) -> None:
    world = EmptyWorld(tmp_path)
    world.balancer.overridden = dict.fromkeys(HOSTS, "its agent check in edges")
    world.balancer.override_advice = Haproxy.override_advice
    told = "e000..e007: may be let in again while it is drained, by its agent check in edges -> "
    assert f"{told}stop it until the rollout is over, by `disable agent" in _refusal(world)


def test_an_agent_that_is_enabled_after_the_plan_ends_the_rollout_before_it_begins(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.balancer.overridden["e002"] = "its agent check in edges"
    pop = world.context.inventory.pop("lab1")
    (found,) = unfit_hosts(Subject(world.context, pop, pop.hosts))
    assert (found.host, "its agent check" in found.what) == ("e002", True)
