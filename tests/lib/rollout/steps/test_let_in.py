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

import pytest

from edgetune.errors import DrainError, ServerError
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.restore_hosts import restore_hosts
from edgetune.rollout.steps.rollout_status import rollout_status
from edgetune.traffic import Server
from tests.support import real_haproxy
from tests.support.virtual_clock import VirtualClock
from tests.support.world import World, changing

_LET_IN = (
    r"was let in again by the load balancer \((once|\d+ times) since \S+ \S+Z, "
    r"as an agent check or an operator may do\)"
)


@pytest.fixture
def world(tmp_path: Path, clock: VirtualClock) -> World:
    return changing(tmp_path)


def drains(world: World, clock: VirtualClock, batch: int = 0) -> list[str]:
    """Drain as the workflow does; what it said while it waited."""
    said: list[str] = []
    told = world.step(begin_drain, batch)
    while told["next"] == "check_drained":
        assert len(said) < 20, said
        clock.wait(told["retry_after"] / 8)
        told = world.step(check_drained, batch)
        said.append(told["message"])
    return said[:-1]


@pytest.mark.parametrize("drop_sessions", [False, True])
def test_a_host_that_is_let_in_again_and_again_is_put_back_and_skipped(
    tmp_path: Path, clock: VirtualClock, drop_sessions: bool
) -> None:
    world = changing(tmp_path, drop_sessions=drop_sessions)
    (host,) = world.at(0)
    world.balancer.lets_in.add(host)
    said = drains(world, clock)
    assert said
    assert all(re.fullmatch(f"waiting for {host}: {_LET_IN}", each) for each in said)
    stands = world.batch(0).hosts[host]
    assert stands.step == "skipped"
    assert re.fullmatch(f"{_LET_IN} after its drain deadline", stands.error or "")
    assert world.balancer.log[-1] == (host, "ready")
    assert (world.hosts.not_ready, world.hosts.tuned) == (set(), set())


def test_a_rollback_quarantines_it_and_goes_on_with_the_other_hosts(
    world: World, clock: VirtualClock
) -> None:
    for batch in range(3):
        world.roll(batch)
    assert len(world.hosts.tuned) > 2
    host = min(world.hosts.tuned)
    world.balancer.lets_in.add(host)
    marked = world.mark("rolling_back")
    for batch in range(marked["first_batch"], marked["end_batch"]):
        drains(world, clock, batch)
        world.roll(batch)
    world.mark("rolled_back")
    assert world.hosts.tuned == {host}
    why = world.head.quarantined[host]
    assert re.fullmatch(f"{_LET_IN} after its drain deadline", why.reason)
    assert not why.out_of_service
    assert why.seen.startswith("ready in the load balancer, with 0 sessions")
    assert f"QUARANTINED {host} (NOT seen out of service: {host}): was let in again" in (
        rollout_status(world.context)["text"].replace("\n", " ").replace("    ", "")
    )


def test_while_it_waits_the_status_says_for_what(world: World) -> None:
    (host,) = world.at(0)
    world.balancer.lets_in.add(host)
    world.step(begin_drain, 0)
    world.step(check_drained, 0)
    text = rollout_status(world.context, world.rollout)["text"]
    assert f"draining {host} (was let in again by the load balancer (once since" in text


@pytest.mark.parametrize("waits", ["carries 3", "carries unknown"])
def test_what_waits_for_sessions_says_how_many_there_are(
    world: World, clock: VirtualClock, waits: str
) -> None:
    (host,) = world.at(0)
    world.balancer.sessions[host] = 3
    world.balancer.counting = waits == "carries 3"
    world.hosts.errors[host, "sessions"] = "timed out"
    said = drains(world, clock)
    assert {*said} == {f"waiting for {host}: still {waits} sessions"}
    assert world.at(0) == {host: "skipped"}


def test_one_that_was_let_in_once_is_not_given_up_for_it(world: World, clock: VirtualClock) -> None:
    """A load balancer was reloaded while nobody looked."""
    (host,) = world.at(0)
    world.step(begin_drain, 0)
    clock.wait(60)
    world.balancer.forget()
    assert world.step(check_drained, 0)["waiting"] == 1
    world.step(check_drained, 0)
    assert world.at(0) == {host: "drained"}


@pytest.mark.parametrize("checks", ["marker", "none"])
def test_what_no_check_keeps_off_has_to_stay_out(
    world: World, clock: VirtualClock, checks: str
) -> None:
    """Without sessions at the moment, and let in at every other look."""
    (host,) = world.at(0)
    known = world.context.inventory.pop("lab1")
    pop = replace(known, load_balancer=replace(known.load_balancer, checks=checks))
    world.context.inventory.pop = lambda name: pop  # type: ignore[method-assign]
    world.step(begin_drain, 0)
    for _ in range(2):
        world.balancer.forget()
        assert world.step(check_drained, 0)["waiting"] == 1
    told = world.step(check_drained, 0)
    if checks == "none":
        assert re.fullmatch(f"waiting for {host}: carries no session; {_LET_IN}", told["message"])
        clock.wait(60)
        assert world.step(check_drained, 0)["skipped"] == [host]
    else:
        assert world.at(0) == {host: "drained"}


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


@pytest.mark.parametrize("step", [apply_tuning, restore_hosts], ids=lambda s: s.__name__)
def test_nothing_is_done_to_a_drained_host_that_is_let_in_again_and_again(
    world: World, clock: VirtualClock, step: object
) -> None:
    batch = 0
    if step is restore_hosts:
        world.roll(0)
        batch = world.mark("rolling_back")["first_batch"]
    world.roll(batch, until=step)
    (host,) = world.at(batch)
    tuned = set(world.hosts.tuned)
    world.balancer.lets_in.add(host)
    began, why = clock.passed, r"the load balancer let it in \d+ times within 1s, as an agent check"
    if step is restore_hosts:
        world.step(step, batch)
        assert re.match(why, world.head.quarantined[host].reason)
    else:
        with pytest.raises(DrainError, match=f"{host}: {why}"):
            world.step(step, batch)
    assert world.hosts.tuned == tuned
    assert clock.passed - began < 2


def test_a_forgotten_host_is_not_touched_before_it_answers(
    world: World, clock: VirtualClock
) -> None:
    """Nobody else knows how many sessions it carries since."""
    (host,) = world.at(0)
    world.roll(0, until=apply_tuning)
    world.balancer.forget()
    world.hosts.errors[host, "ready"] = "timed out"
    with pytest.raises(DrainError, match=f"{host}: the load balancer forgot the drain"):
        world.step(apply_tuning, 0)
    assert world.hosts.tuned == set()


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
