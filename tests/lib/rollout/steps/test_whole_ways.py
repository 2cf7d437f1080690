# SPDX-License-Identifier: Apache-2.0
"""Batches and rollbacks the whole way, whatever others and load balancers do at any moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.documents.reading import taken
from edgetune.base.documents.settings import HostSetting
from edgetune.base.errors import EdgetuneError, FencedError
from edgetune.net.metrics.sources.hosts import sample_request
from edgetune.net.result import HostResult
from edgetune.net.traffic import Server
from edgetune.rollout.hosts.change import can_cut_off
from edgetune.rollout.ownership import lease
from tests.support.agent_root import channels, file, rps, setting, sysctl, thp
from tests.support.virtual_clock import VirtualClock
from tests.support.world import World, changing


@pytest.fixture
def world(tmp_path: Path) -> World:
    return changing(tmp_path)


@pytest.mark.parametrize("batch", [0, 1], ids=["change", "sham"])
def test_a_host_is_not_ready_from_drained_until_verified(world: World, batch: int) -> None:
    _watch_readiness(world, batch)


def test_a_host_that_is_taken_back_is_not_ready_meanwhile(world: World) -> None:
    world.roll(0)
    _watch_readiness(world, world.mark("rolling_back")["first_batch"])


def _watch_readiness(world: World, batch: int) -> None:
    (host,) = world.at(batch)
    seen: list[str] = []

    def look(moment: str) -> None:
        _, subject, *rest = moment.split()
        if rest and rest[0] in ("apply", "restore", "reboot", "confirm"):
            assert host in world.hosts.not_ready
            assert world.balancer.state[host] == "maint"
            seen.append(rest[0])

    world.moments.at = look
    world.step("begin_drain", batch)
    assert (world.balancer.state[host], host in world.hosts.not_ready) == ("drain", False)
    world.step("check_drained", batch)
    assert host in world.hosts.not_ready
    world.roll(batch, until="undrain_hosts")
    assert world.at(batch) == {host: "verified"}
    assert world.hosts.not_ready == set()
    assert world.balancer.state[host] == "maint"
    world.step("undrain_hosts", batch)
    assert world.balancer.state[host] == "ready"
    assert "reboot" in seen


def test_the_service_is_asked_as_the_inventory_says(world: World) -> None:
    told = {"health": "https://127.0.0.1/h", "health_name": "www.example.org"}
    pop = replace(world.context.inventory.pop("lab1"), **told, health_tls="insecure")
    assert sample_request(pop, 2) == {
        "health_url": "https://127.0.0.1/h",
        "health_name": "www.example.org",
        "health_tls": "insecure",
        "health_requests": 2,
    }
    plain = sample_request(world.context.inventory.pop("lab1"), 2)
    assert plain == {"health_url": "http://127.0.0.1:80/health", "health_requests": 2}


HALVES = pytest.mark.parametrize("first", [0, pytest.param(2, marks=pytest.mark.long)])
"""Each effect has the moment before it and the one after, which are the same to the world. Every
other effect is for ``make test-all``."""


@pytest.mark.slow
@HALVES
def test_no_batch_touches_a_host_with_sessions_whenever_the_load_balancer_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    for waits in ("hosts.drain", "gates.floor", "steps.undrain_hosts"):
        monkeypatch.setattr(f"edgetune.rollout.{waits}.POLL", 0)
    monkeypatch.setattr("edgetune.rollout.hosts.drain._STAYS", 0)
    for moment in count(first, 4):
        world = changing(tmp_path / str(moment))
        world.balancer.clients = True
        world.balancer.servers()
        start = len(world.moments.seen)

        def forget(what: str, world: World = world, at: int = start + moment) -> None:
            if len(world.moments.seen) - 1 == at:
                world.balancer.forget()

        world.moments.at = forget
        world.roll_all({"first_batch": 0, "end_batch": 2})
        assert world.hosts.disturbed == [], moment
        assert world.batch(0).finished and world.batch(1).finished, moment
        assert set(world.balancer.state.values()) == {"ready"}, moment
        assert world.hosts.not_ready == set(), moment
        if len(world.moments.seen) <= start + moment:
            assert moment > 50
            return


def test_a_live_tuning_is_drained_back_under_one_that_drains(tmp_path: Path) -> None:
    """What stands on it is suspended, and applied again."""
    world = changing(tmp_path, disruption="live")
    below = world.rollout
    for disruption in ("live", "drain"):
        if disruption == "drain":
            world.begin(tmp_path, disruption=disruption, seed=8)
            for state in ("baseline", "changing"):
                world.mark(state)
        for batch in range(len(world.plan.batches)):
            world.roll(batch)
        for state in ("soaking", "promoting", "complete"):
            world.mark(state)
    world.rollout = below
    world.take_over()
    world.balancer.log.clear()
    world.roll_back()
    drained = {entry for entry in map(str, world.balancer.log) if "drain" in entry}
    assert len(drained) == 4


@pytest.mark.slow
@pytest.mark.usefixtures("clock")
@HALVES
def test_a_rollback_called_twice_at_once_fences_the_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """At every moment of one, somebody else begins another and brings it to its end."""
    # Between a look at the claim and what follows no second one fits that lasts a while.
    monkeypatch.setattr(lease, "_PERMIT_HOLDS", 0)
    moment = 0
    for moment in count(first, 4):
        world = changing(tmp_path / str(moment), batch_size=2)
        world.roll(0)
        world.roll(2, until="verify_hosts")
        if _both(world, len(world.moments.seen) + moment) is None:
            break
        assert world.head.state == "rolled_back", moment
        assert (world.hosts.tuned, world.hosts.not_ready) == (set(), set()), moment
        assert set(world.balancer.state.values()) == {"ready"}, moment
        assert world.head.quarantined == {}, moment
    assert moment > 50


def _both(world: World, at: int) -> EdgetuneError | None:
    """What the older one is told; None if it ended before that moment."""

    def second(moment: str) -> None:
        if len(world.moments.seen) > at and moment.startswith("after"):
            world.moments.at = lambda moment: None
            # Both are the same world to this test; only their epochs differ.
            older = world.epoch
            if world.take_over(unfinished_only=True)["claimed"]:
                world.roll_back()
            world.epoch = older

    world.moments.at = second
    try:
        world.roll_back()
    except FencedError as error:
        return error
    return None


def test_a_host_that_cannot_be_cut_off_waits_for_nothing() -> None:
    harmless = [sysctl("1", "vm.swappiness"), thp("never"), file("/etc/x", "x\n")]
    assert not _can_cut_off(harmless)
    route = setting("route.metric", {"family": "inet", "route": "default"}, {"initcwnd": 9})
    for own in (sysctl("1"), sysctl("1", "net/core/x"), rps("0"), channels(2), route):
        assert _can_cut_off([*harmless, own])


def _can_cut_off(settings: Sequence[Mapping[str, Any]]) -> bool:
    return can_cut_off([taken(HostSetting, own) for own in settings])


def test_a_host_that_served_in_an_earlier_look_is_looked_at_again(
    world: World, clock: VirtualClock
) -> None:
    """The last look of the deadline shows it down, and no look before or after."""
    world.roll_all({"first_batch": 0, "end_batch": 2})
    world.roll(2)
    (host,) = world.at(0)
    began = world.mark("rolling_back")
    world.roll(began["first_batch"], until="undrain_hosts")
    other = next(name for name in world.at(began["first_batch"]) if name != host)
    looks = 0
    whole = world.balancer.servers

    def servers() -> Mapping[str, Server]:
        nonlocal looks
        looks += 1
        clock.wait(0.45)
        # One host keeps the step looking until its deadline, then the other has a bad moment.
        world.balancer.up[other] = looks > 3
        world.balancer.up[host] = looks != 3
        return whole()

    world.balancer.servers = servers
    done = world.step("undrain_hosts", began["first_batch"])
    assert host in done["done"]
    assert world.head.quarantined == {}


def test_a_connection_that_fails_once_quarantines_nobody(world: World) -> None:
    """Each second question that is asked once only does not reach its hosts."""
    world.roll_all({"first_batch": 0, "end_batch": 2})
    ask, asked = world.hosts.ask, 0

    def failing(
        hosts: Any, verb: str, request: Any, timeout: float = 0, patience: float = 0
    ) -> Any:
        nonlocal asked
        asked += not patience
        if patience or verb == "sample" or asked % 2:
            return ask(hosts, verb, request, timeout, patience)
        return {each.name: HostResult(each.name, error="timed out") for each in hosts}

    world.hosts.ask = failing
    assert world.roll_back()["quarantined"] == {}
