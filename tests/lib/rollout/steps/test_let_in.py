# SPDX-License-Identifier: Apache-2.0
"""A load balancer that lets a drained server in again and again, whatever it is told."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any

import pytest

from edgetune.errors import DrainError, ServerError
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.rollout_status import rollout_status
from edgetune.traffic import Server
from tests.support import real_haproxy
from tests.support.scenarios import Scenario, begun, scenarios
from tests.support.virtual_clock import VirtualClock
from tests.support.world import World, changing

_LET_IN = (
    r"was let in again by the load balancer \((once|\d+ times) since \S+ \S+Z, "
    r"as an agent check or an operator may do\)"
)


@pytest.fixture
def world(tmp_path: Path, clock: VirtualClock) -> World:
    return changing(tmp_path)


class DrainMoves(Scenario):
    """Moves of a drain that is waited for."""

    def drains(self, told: str) -> None:
        """What is said each time, or null for anything."""
        said = self._drained()
        assert said
        for each in said:
            self._compare("what is told", each, told)

    def drains_on(self, _: object) -> None:
        """All batches of a rollback."""
        for batch in range(self.result["first_batch"], self.result["end_batch"]):
            self.batch(batch)
            self._drained()
            self.world.roll(batch)

    def _drained(self) -> list[str]:
        """Drain as the workflow does; what it said while it waited."""
        said: list[str] = []
        self.step("begin_drain")
        while self.result["next"] == "check_drained":
            assert len(said) < 20, said
            self.wait(self.result["retry_after"] / 8)
            self.step("check_drained")
            said.append(self.result["message"])
        return said[:-1]

    def checks(self, how: str) -> None:
        """The load balancer checks hosts in this way."""
        known = self.world.context.inventory.pop("lab1")
        pop = replace(known, load_balancer=replace(known.load_balancer, checks=how))
        self.world.context.inventory.pop = lambda name: pop  # type: ignore[method-assign]

    @property
    def overview(self) -> str:
        text = rollout_status(self.world.context)["text"]
        return text.replace("\n", " ").replace("    ", "")


@pytest.mark.parametrize("case", scenarios(__file__))
def test_a_server_that_is_let_in_again_is_neither_changed_nor_waited_for_for_ever(
    case: Any, tmp_path: Path, clock: VirtualClock
) -> None:
    DrainMoves(begun(case[0], tmp_path), clock).play(case)


def test_a_host_that_steers_itself_and_does_not_obey_was_never_let_in_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = world.at(0)
    world.step(begin_drain, 0)
    world.balancer.forget()

    def refuse(server: str) -> None:
        raise ServerError("no route to host")

    monkeypatch.setattr(world.balancer, "withdraw", refuse)
    for _ in range(3):
        assert world.step(check_drained, 0)["message"] == f"waiting for {host}: no route to host"
    assert world.batch(0).hosts[host].let_in == 0


def test_a_host_that_is_let_in_twice_is_not_said_to_keep_its_sessions(
    world: World, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time right before the deadline."""
    (host,) = world.at(0)
    world.roll(0, until=apply_tuning)
    world.balancer.forget()
    world.hosts.errors[host, "ready"] = "timed out"
    world.context.config = replace(world.context.config, health_deadline=10)
    began, look = clock.passed, world.balancer.servers

    def servers() -> Mapping[str, Server]:
        if clock.passed - began > 8 and world.hosts.errors:
            world.hosts.errors.clear()
            world.balancer.forget()
        return look()

    monkeypatch.setattr(world.balancer, "servers", servers)
    with pytest.raises(DrainError, match=f"{host}: the load balancer let it in 2 times within 10s"):
        world.step(apply_tuning, 0)


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


@pytest.mark.processes
@pytest.mark.skipif("not __import__('shutil').which('haproxy')", reason="HAProxy is not installed")
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
        with real_haproxy.running([("edges", servers)]) as haproxy:
            world.context.load_balancer = (  # type: ignore[method-assign]
                lambda pop: haproxy.driver()
            )
            told = world.step(begin_drain, batch)
            for _ in range(60):
                if told["next"] == "check_drained":
                    time.sleep(0.1)
                    told = world.step(check_drained, batch)
    stands = world.batch(batch).hosts[host]
    assert (stands.step, told["failed"]) == ("skipped" if way == "there" else "quarantined", [])
    assert re.search(f"{_LET_IN} after its drain deadline", stands.error or "")
