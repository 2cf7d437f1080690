# SPDX-License-Identifier: Apache-2.0
"""What the load balancer does not show is no evidence, and what a quarantine promises is seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.errors import DrainError
from edgetune.hosts.result import HostResult
from edgetune.report.text import rollout_text
from edgetune.traffic import Server
from tests.support.virtual_clock import VirtualClock
from tests.support.world import World, changing

GONE = "Read-only file system"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One host is changed, one was rebooted only; the rollout is being taken back."""
    made = changing(tmp_path)
    made.roll_all({"first_batch": 0, "end_batch": 2})
    return made


def _serves_without(world: World, hidden: Callable[[int], set[str]]) -> None:
    """The load balancer's list lacks servers; ``hidden`` tells which, by the number of the look."""
    whole, looks = world.balancer.servers, 0

    def servers() -> Mapping[str, Server]:
        nonlocal looks
        looks += 1
        return {name: each for name, each in whole().items() if name not in hidden(looks)}

    world.balancer.servers = servers


def test_a_server_that_one_answer_lacks_is_taken_back_like_any_other(world: World) -> None:
    (host,) = world.at(0)
    began = world.mark("rolling_back")
    _serves_without(world, lambda look: {host} if look == 1 else set())
    world.roll_all(began)
    assert world.mark("rolled_back")["quarantined"] == {}
    assert host not in world.hosts.tuned


def test_a_server_that_every_answer_lacks_is_quarantined_and_named(world: World) -> None:
    (host,) = world.at(0)
    began = world.mark("rolling_back")
    _serves_without(world, lambda look: {host})
    world.roll_all(began)
    marked = world.mark("rolled_back")
    assert marked["quarantined"] == {host: "the load balancer does not know it any more"}
    assert world.head.quarantined[host].out_of_service is True
    assert "NOT" not in marked["message"]
    said = "    out of service: not in the load balancer's list of servers"
    assert said in world.status(rollout=world.rollout)
    # It may be a machine that somebody else uses by now.
    assert host not in world.hosts.not_ready


@pytest.mark.parametrize("away", [False, True])
def test_a_load_balancer_that_knows_no_host_or_is_away_says_nothing_of_hosts(
    world: World, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    def cut() -> Any:
        raise DrainError("HAProxy cut its answer off")

    world.mark("rolling_back")
    _serves_without(world, lambda look: set(world.balancer.state))
    if away:
        world.balancer.servers = cut
    says = "cut its answer off" if away else "the load balancer knows none of its hosts"
    with pytest.raises(DrainError, match=says):
        world.step("drain_hosts", world.head.first_restore)
    assert world.head.quarantined == {}


def test_a_server_that_vanishes_between_two_looks_fails_the_step(tmp_path: Path) -> None:
    world = changing(tmp_path)
    (host,) = world.at(0)
    _serves_without(world, lambda look: {host} if look > 2 else set())
    with pytest.raises(DrainError, match=f"has no server '{host}'"):
        world.step("drain_hosts", 0)


def test_a_host_that_served_in_an_earlier_look_is_looked_at_again(
    world: World, clock: VirtualClock
) -> None:
    """The last look of the deadline shows it down, and no look before or after."""
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


def test_a_host_is_back_once_a_check_has_passed(world: World) -> None:
    """HAProxy takes a server for up as it leaves maintenance, and checks it then."""
    (host,) = world.at(0)
    world.mark("rolling_back")
    batch = world.head.first_restore
    world.roll(batch, until="undrain_hosts")
    whole = world.balancer.servers
    world.balancer.servers = lambda: {
        name: replace(each, passing=False) for name, each in whole().items()
    }
    world.step("undrain_hosts", batch)
    assert world.at(batch) == {host: "quarantined"}
    assert world.head.quarantined[host].out_of_service is True


@pytest.fixture
def live(tmp_path: Path) -> tuple[World, str, list[str]]:
    """A live tuning that one host in service cannot take back; that host, and the others."""
    world = changing(tmp_path, disruption="live")
    world.roll_all({"first_batch": 0, "end_batch": 1})
    (host,) = world.at(0)
    world.hosts.errors[host, "restore"] = GONE
    assert world.balancer.state[host] == "ready"
    return world, host, [name for name in world.balancer.state if name != host]


def test_a_quarantined_host_that_serves_is_taken_out_and_serves_again_once_released(
    live: Any,
) -> None:
    world, host, _ = live
    marked = world.roll_back()
    assert (world.balancer.state[host], world.hosts.not_ready) == ("maint", {host})
    assert world.head.quarantined[host].out_of_service is True
    assert marked["message"].count(f" but {host}, quarantined;") == 1
    said = "    out of service: maint in the load balancer"
    assert said in world.status(rollout=world.rollout)
    world.hosts.errors.clear()
    world.take_over()
    assert world.roll_back(hosts=[host])["quarantined"] == {}
    assert (world.balancer.state[host], world.hosts.not_ready) == ("ready", set())


def test_min_in_service_keeps_a_quarantined_host_in_service_and_it_is_said(live: Any) -> None:
    world, host, others = live
    for other in others[:4]:
        world.balancer.up[other] = False
    marked = world.roll_back()
    assert (host, "maint") not in world.balancer.log
    assert (world.balancer.state[host], world.hosts.not_ready) == ("ready", set())
    why = world.head.quarantined[host]
    assert (why.out_of_service, why.noted) == (False, "without it 3 hosts would serve, 4 must")
    assert f"but {host}, quarantined and NOT seen out of service: {host}" in marked["message"]
    said = "    NOT seen out of service: ready in the load balancer"
    assert said in world.status(rollout=world.rollout)


def test_a_host_goes_back_when_somebody_else_drains_at_the_same_moment(live: Any) -> None:
    world, host, others = live
    for other in others[:3]:
        world.balancer.up[other] = False

    def drains(moment: str) -> None:
        if moment == f"after {host} maint":
            world.balancer.state[others[3]] = "drain"

    world.moments.at = drains
    world.roll_back()
    assert (host, "maint") in world.balancer.log
    assert world.balancer.state[host] == "ready"
    assert world.head.quarantined[host].out_of_service is False
    assert world.hosts.not_ready == set()


@pytest.mark.parametrize("refuses", ["load balancer", "host"])
def test_where_a_host_or_the_load_balancer_refuses_it_is_said_whether_it_is_out(
    live: Any, refuses: str
) -> None:
    def refuse(server: str) -> None:
        raise DrainError("Permission denied")

    world, host, _ = live
    if refuses == "load balancer":
        world.balancer.isolate = refuse
        expected = (False, "Permission denied")
    else:
        world.hosts.errors[host, "ready"] = "No route to host"
        expected = (True, "it could not be told to say not ready: No route to host")
    marked = world.roll_back()
    why = world.head.quarantined[host]
    assert (why.out_of_service, why.noted) == expected
    assert ("NOT seen out of service" in marked["message"]) is not why.out_of_service


def test_what_is_said_at_the_end_is_what_is_seen_then(world: World) -> None:
    """A person, or a load balancer that forgot, put the host back meanwhile."""
    (host,) = world.at(0)
    world.hosts.errors[host, "restore"] = GONE
    began = world.mark("rolling_back")
    world.roll_all(began)
    assert world.head.quarantined[host].out_of_service is True
    world.balancer.state[host] = "ready"
    assert "NOT seen out of service" in world.mark("rolled_back")["message"]
    # Version 0.6 wrote down nothing of it.
    head = world.head
    head.quarantined[host] = replace(head.quarantined[host], out_of_service=None, seen="", noted="")
    assert "NOT known to be out of service" in rollout_text(head)
