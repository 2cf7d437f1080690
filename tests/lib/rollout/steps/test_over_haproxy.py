# SPDX-License-Identifier: Apache-2.0
"""Steps over a real HAProxy: weights of zero, and an agent check that lets a drained server in."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest

from edgetune.base.errors import RefusedError
from edgetune.rollout.hosts.in_service import hosts_in_service, needs_room
from tests.support.named_services import services, who_gets
from tests.support.real_haproxy import CLIENTS, RealHaproxy, needs_haproxy, running
from tests.support.world import World, changing

pytestmark = needs_haproxy
_CHECK = "check inter 50ms fall 1 rise 1"
HOSTS = [f"e{number:03d}" for number in range(8)]
_LET_IN = (
    r"was let in again by the load balancer \((once|\d+ times) since \S+ \S+Z, "
    r"as an agent check or an operator may do\)"
)


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


class TestWeights:
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
                world.step("begin_drain", 0)
            assert who_gets(haproxy.folder / "clients", HOSTS) == got

    def test_a_host_without_weight_is_drained_and_put_back_without_weight(
        self, tmp_path: Path
    ) -> None:
        """Though HAProxy forgets the weight in between, as it does when it is reloaded."""
        world = changing(tmp_path, disruption="drain")
        (host,) = world.at(0)
        with behind_haproxy(world) as haproxy:
            _weigh(haproxy, host)
            world.step("begin_drain", 0)
            haproxy.ask(f"set server edges/{host} weight 100%")
            while world.at(0) == {host: "draining"}:
                assert world.step("check_drained", 0)["failed"] == []
            for step in world.way(0)[2:]:
                world.step(step, 0)
            assert world.at(0) == {host: "done"}
            assert who_gets(haproxy.folder / "clients", HOSTS) == {*HOSTS} - {host}


class _SaysReady(BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"up ready\n")


@contextmanager
def _agent() -> Iterator[int]:
    """The port of an agent that has every server ready (configuration.txt, "agent-check")."""
    with ThreadingTCPServer(("127.0.0.1", 0), _SaysReady) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("way", ["there", "back"])
def test_haproxy_with_an_agent_that_has_every_server_ready(tmp_path: Path, way: str) -> None:
    world = changing(tmp_path)
    (host,) = world.at(0)
    if way == "back":
        world.roll(0)
    batch = world.mark("rolling_back")["first_batch"] if way == "back" else 0
    world.context.config = replace(world.context.config, health_deadline=60)
    with _agent() as port:
        # On the way back it undoes a change before HAProxy has told us that it made it.
        every = "1ms" if way == "back" else "300ms"
        check = f"agent-check agent-port {port} agent-addr 127.0.0.1 agent-inter {every}"
        servers = [
            f"server {name} {address}:80 {check if name == host else ''}"
            for name, address in world.balancer.addresses.items()
        ]
        with running([("edges", servers)]) as haproxy:
            world.context.load_balancer = (  # type: ignore[method-assign]
                lambda pop: haproxy.driver()
            )
            told = world.step("begin_drain", batch)
            for _ in range(60):
                if told["next"] == "check_drained":
                    time.sleep(0.1)
                    told = world.step("check_drained", batch)
    stands = world.batch(batch).hosts[host]
    assert (stands.step, told["failed"]) == ("skipped" if way == "there" else "quarantined", [])
    assert re.search(f"{_LET_IN} after its drain deadline", stands.error or "")
