# SPDX-License-Identifier: Apache-2.0
"""Hosts leave the traffic and come back, whatever the load balancer and others do meanwhile."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from edgetune.metrics.sources.hosts import sample_request
from edgetune.rollout.lease import as_owner
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.undrain_hosts import undrain_hosts
from tests.support.scenarios import Scenario, play, scenarios
from tests.support.world import World, changing


@pytest.fixture
def world(tmp_path: Path) -> World:
    return changing(tmp_path)


@pytest.mark.parametrize("case", scenarios(__file__))
def test_hosts_leave_the_traffic_and_come_back(case: Any, tmp_path: Path, clock: Any) -> None:
    play(case, tmp_path, clock)


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
    world.step(begin_drain, batch)
    assert (world.balancer.state[host], host in world.hosts.not_ready) == ("drain", False)
    world.step(check_drained, batch)
    assert host in world.hosts.not_ready
    world.roll(batch, until=undrain_hosts)
    assert world.at(batch) == {host: "verified"}
    assert world.hosts.not_ready == set()
    assert world.balancer.state[host] == "maint"
    world.step(undrain_hosts, batch)
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


@pytest.mark.slow
def test_no_batch_touches_a_host_with_sessions_whenever_the_load_balancer_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for waits in ("drain", "steps.drain_hosts", "steps.undrain_hosts"):
        monkeypatch.setattr(f"edgetune.rollout.{waits}.POLL", 0)
    monkeypatch.setattr("edgetune.rollout.drain._STAYS", 0)
    # After an effect or before the next one is the same to the world.
    for moment in count(0, 2):
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


@pytest.mark.slow
def test_no_host_is_touched_with_sessions_that_only_it_counts(world: World) -> None:
    """All the way there and back."""
    world.balancer.clients, world.balancer.counting = True, False
    world.roll_all({"first_batch": 0, "end_batch": len(world.plan.batches)})
    assert len(world.hosts.tuned) == 4
    world.roll_back()
    assert (world.hosts.tuned, world.head.quarantined) == (set(), {})
    assert set(world.balancer.state.values()) == {"ready"}
    assert world.hosts.told("sessions")
    assert world.hosts.disturbed == []


def test_sessions_that_nobody_can_count_are_not_none(world: World) -> None:
    (host,) = world.at(0)
    pop = world.context.inventory.pop("lab1")
    world.context.inventory.pop = lambda name: replace(pop, ports=())  # type: ignore[method-assign]
    world.balancer.counting = False
    world.step(begin_drain, 0)
    assert world.step(check_drained, 0)["waiting"] == 1
    world.age(0)
    world.step(check_drained, 0)
    batch = world.batch(0).hosts[host]
    assert batch.step == "skipped"
    assert batch.error == "still carries unknown sessions after its drain deadline"


def test_sessions_that_only_the_host_still_counts_are_waited_for(world: World) -> None:
    """A reloaded load balancer counts no session of its former process."""
    (host,) = world.at(0)
    world.step(begin_drain, 0)
    world.hosts.sessions = lambda name: 2
    assert world.step(check_drained, 0)["waiting"] == 1
    assert world.at(0) == {host: "draining"}
    world.age(0)
    assert world.step(check_drained, 0)["skipped"] == [host]
    assert (world.balancer.state[host], world.hosts.not_ready) == ("ready", set())


def test_the_usual_load_is_the_most_of_the_baseline(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.mark("baseline")
    opened = as_owner(world.context, world.rollout)
    opened.head.baseline[0] -= 1000
    opened.save()
    Scenario(world).load([50.0, 100.0, 25.0])
    world.mark("changing")
    assert world.head.usual_load == pytest.approx(800.0)


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
