# SPDX-License-Identifier: Apache-2.0
"""Hosts that their own change cuts off: how long they wait, and how long a rollback waits."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from edgetune.documents.reading import taken
from edgetune.documents.settings import HostSetting
from edgetune.hosts.result import HostResult
from edgetune.rollout.reverts import can_cut_off
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.verify_hosts import verify_hosts
from tests.support.agent_root import channels, file, rps, setting, sysctl, thp
from tests.support.scenarios import Scenario, begun, scenarios
from tests.support.world import World, changing


@pytest.fixture(autouse=True)
def one_look_at_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain waits for nothing in its step: these hosts are cut off, and never drained."""
    monkeypatch.setattr("edgetune.rollout.steps.drain_hosts.AT_ONCE", 0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Its first host is drained, and about to be changed by a setting of the network."""
    made = changing(tmp_path)
    made.roll(0, until=apply_tuning)
    return made


class CutOffMoves(Scenario):
    """Moves of a host that its own change cuts off."""

    def cut_off(self, _: object) -> None:
        cut_off(self.world)

    def overdue(self, name: str) -> None:
        """The host should have taken its change back by now."""
        self.record({name: {"reverts_at": time.time()}})


@pytest.mark.parametrize("case", scenarios(__file__))
def test_hosts_that_are_cut_off_are_waited_for(case: Any, tmp_path: Path) -> None:
    made = begun(case[0], tmp_path)
    made.roll(0, until=apply_tuning)
    CutOffMoves(made).play(case)


def host_of(world: World) -> str:
    (name,) = world.at(0)
    return name


def cut_off(world: World) -> str:
    """The host is changed, and its answer is the last that it could not send."""
    name = host_of(world)
    world.hosts.tuned.add(name)
    world.hosts.unreachable.add(name)
    assert world.step(apply_tuning, 0)["failed"] == [name]
    return name


def asked(world: World, verb: str) -> dict[str, Any]:
    """The newest request of a verb."""
    return [request for _, known, request in world.hosts.asked if known == verb][-1]


def until(world: World, batch: int, name: str) -> float:
    return world.batch(batch).hosts[name].reverts_at


def begin_rollback(world: World) -> int:
    """By whoever comes next, of what the record says; its first batch."""
    batch = int(world.mark("rolling_back")["first_batch"])
    world.step(drain_hosts, batch)
    return batch


@pytest.mark.parametrize("health", [1, 60, 120])
def test_without_a_reboot_a_host_waits_a_little_longer_than_it_is_asked(
    tmp_path: Path, health: float
) -> None:
    world = changing(tmp_path, disruption="restart")
    object.__setattr__(world.context.config, "health_deadline", health)
    world.roll(0, until=verify_hosts)
    within = asked(world, "apply")["confirm_within"]
    assert health + 60 < within <= health + 100


def test_with_a_reboot_a_host_waits_until_it_is_back(tmp_path: Path) -> None:
    world = changing(tmp_path, disruption="reboot")
    object.__setattr__(world.context.config, "reboot_deadline", 1200)
    world.roll(0, until=verify_hosts)
    assert asked(world, "apply")["confirm_within"] > 1200


def test_a_host_that_cannot_be_cut_off_waits_for_nothing() -> None:
    harmless = [sysctl("1", "vm.swappiness"), thp("never"), file("/etc/x", "x\n")]
    assert not _can_cut_off(harmless)
    route = setting("route.metric", {"family": "inet", "route": "default"}, {"initcwnd": 9})
    for own in (sysctl("1"), sysctl("1", "net/core/x"), rps("0"), channels(2), route):
        assert _can_cut_off([*harmless, own])


def _can_cut_off(settings: Sequence[Mapping[str, Any]]) -> bool:
    return can_cut_off([taken(HostSetting, own) for own in settings])


def test_until_when_stands_in_the_record_before_the_host_is_asked(world: World) -> None:
    seen = []
    world.moments.at = lambda moment: seen.append(until(world, 0, host_of(world)))
    world.step(apply_tuning, 0)
    world.moments.at = lambda moment: None
    assert any(when > time.time() for when in seen)
    world.step(verify_hosts, 0)
    assert until(world, 0, host_of(world)) == 0, "it was confirmed"


def test_a_host_from_which_connections_are_lost_is_not_confirmed(world: World) -> None:
    world.step(apply_tuning, 0)

    def lie(name: str, reply: Any) -> Any:
        told = {"confirmed": False, "lost_connections": {"192.0.2.1": 9}}
        reply["result"].update(told if reply["verb"] == "confirm" else {})
        return reply

    world.hosts.lies = lie
    report = world.step(verify_hosts, 0)
    why = "9 connections from the host to 192.0.2.1 get no answer since the change"
    assert report["hosts"][host_of(world)]["error"] == f"not verified: {why}"


@pytest.fixture
def connected(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Hosts to which connections from many ports were made."""
    asked_for: list[str] = []

    def lost(hosts: Sequence[Any], ports: Sequence[int]) -> dict[str, str]:
        asked_for.extend(host.name for host in hosts)
        return {}

    monkeypatch.setattr(world.hosts, "lost_connections", lost)
    return asked_for


def test_a_host_that_is_cut_off_is_not_connected_to_from_many_ports(
    world: World, connected: list[str]
) -> None:
    name = cut_off(world)
    Scenario(world).record({name: {"step": "changed"}})
    assert world.step(verify_hosts, 0)["failed"] == [name] and connected == []


@pytest.mark.parametrize("network", [True, False])
def test_only_a_change_of_the_network_is_confirmed_from_many_ports(
    world: World, connected: list[str], monkeypatch: pytest.MonkeyPatch, network: bool
) -> None:
    world.step(apply_tuning, 0)
    monkeypatch.setattr("edgetune.rollout.steps.verify_hosts.can_cut_off", lambda own: network)
    assert not world.step(verify_hosts, 0)["failed"]
    assert connected == ([host_of(world)] if network else [])


def test_who_takes_the_rollout_over_waits_as_long(world: World) -> None:
    name = cut_off(world)
    first = until(world, begin_rollback(world), name)
    assert first > time.time()
    world.take_over()
    assert until(world, begin_rollback(world), name) == first


def test_a_clock_that_was_set_back_makes_nobody_wait_for_days(world: World) -> None:
    name = cut_off(world)
    Scenario(world).record({name: {"reverts_at": time.time() + 86400}})
    batch = begin_rollback(world)
    world.step(check_drained, batch)
    assert time.time() < until(world, batch, name) < time.time() + 3600


@pytest.mark.parametrize("reason", ["refused", "undone", "bad_request"])
def test_a_host_that_was_left_as_it_was_is_given_back(
    world: World, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent proved that nothing of its apply is left: nothing is to be waited for."""
    name = host_of(world)
    one = world.hosts._one

    def refuse(host: str, verb: str, request: dict[str, Any]) -> HostResult:
        if verb == "apply":
            return HostResult(host, error="Read-only file system", reason=reason)
        return one(host, verb, request)

    monkeypatch.setattr(world.hosts, "_one", refuse)
    assert world.step(apply_tuning, 0)["failed"] == [name]
    assert world.at(0) == {name: "drained"}
    assert until(world, 0, name) == 0
    batch = int(world.mark("rolling_back")["first_batch"])
    world.roll(batch)
    assert world.at(batch) == {name: "done"} and not world.head.quarantined
