# SPDX-License-Identifier: Apache-2.0
"""Alerts of hosts are silenced while a rollout has them out of service, and no longer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from edgetune.base import clock
from edgetune.base.documents.batch import Silence, read_batch
from edgetune.net import silences
from edgetune.net.silences import keep_silences
from edgetune.rollout.ownership.lease import as_owner
from edgetune.site.alertmanager import Alertmanager
from tests.support.alertmanagers import EITHER, InMemory, Silenced, in_memory, real, say
from tests.support.alertmanagers import needs_alertmanager as needed
from tests.support.builders import inventory_document, write_yaml
from tests.support.scenarios import Scenario, scenarios
from tests.support.world import World, at_every_moment, changing

BOUND = 1000.0


@pytest.fixture
def alertmanager() -> Iterator[InMemory]:
    with in_memory() as begun:
        yield begun


@pytest.fixture
def world(tmp_path: Path, alertmanager: InMemory) -> World:
    return _made(tmp_path, alertmanager)


def _made(folder: Path, where: Silenced, **planned: Any) -> World:
    """A rollout that is changing, with an Alertmanager."""
    made = changing(folder, **planned)
    settings = Alertmanager(url=(where.url,), matchers={"host": "{name}"}, bound=BOUND)
    made.context.config = replace(made.context.config, alertmanager=settings)
    return made


def _watch(world: World, alertmanager: Silenced) -> list[str]:
    """Hosts that left and came back, each seen to be silenced as the load balancer was told."""
    seen: list[str] = []

    def look(moment: str) -> None:
        when, subject, *rest = moment.split()
        if rest and rest[0] in ("drain", "maint", "ready") and subject in world.balancer.state:
            if rest != ["ready"] or when == "before":
                assert subject in alertmanager.active(), moment
            seen.append(f"{subject} {rest[0]}")

    world.moments.at = look
    return seen


def _until(silence: dict[str, Any]) -> float:
    return datetime.fromisoformat(silence["endsAt"].replace("Z", "+00:00")).timestamp()


class SilenceMoves(Scenario):
    """Moves of a world with an Alertmanager."""

    def __init__(self, world: World, alertmanager: InMemory) -> None:
        super().__init__(world)
        self.alertmanager = alertmanager

    def long_ago(self, seconds: float) -> None:
        _age(self.world, self._batch, seconds)

    def fails(self, _: object) -> None:
        self.alertmanager.says = lambda *_: say(503, "no")

    def heals(self, _: object) -> None:
        self.alertmanager.says = None

    def watched(self, _: object) -> None:
        self._seen_to_serve = _watch(self.world, self.alertmanager)

    @property
    def silenced(self) -> set[str]:
        return {*self.alertmanager.active()}

    @property
    def seen(self) -> set[str]:
        return {*self._seen_to_serve}

    @property
    def requests(self) -> int:
        return len(self.alertmanager.asked)

    @property
    def complaints(self) -> list[str]:
        history = self.world.head.history
        return [f"{own.reason} ({own.by})" for own in history if "not silenced" in own.reason]

    @property
    def now_told(self) -> str:
        """What the status says of now, if that is not that alerts are heard."""
        shown = self.world.status(rollout=self.world.rollout).partition("now: ")[2]
        now = shown.partition("\n")[0]
        return "" if "not silenced" in now else now

    @property
    def alerts(self) -> list[str]:
        """What the doctor found of alerts."""
        (own,) = (check for check in self.result["checks"] if check["check"] == "alerts")
        return [found["what"] for found in own["findings"]]


@pytest.mark.parametrize("case", scenarios(__file__))
def test_a_host_is_silenced_while_it_is_out(
    case: Any, tmp_path: Path, alertmanager: InMemory
) -> None:
    world = _made(tmp_path, alertmanager, **case[0].pop("plan", {}))
    SilenceMoves(world, alertmanager).play(case)


def test_without_the_option_nobody_is_silenced(tmp_path: Path) -> None:
    world = changing(tmp_path)
    world.roll_all({"first_batch": 0, "end_batch": 1})
    assert world.batch(0).silence is None


@pytest.mark.slow
@pytest.mark.parametrize("begin", EITHER)
def test_a_host_is_silenced_before_it_is_withdrawn_until_it_serves(
    begin: Any, tmp_path: Path
) -> None:
    with begin() as alertmanager:
        world = _made(tmp_path, alertmanager)
        seen = _watch(world, alertmanager)
        for batch in (0, 1, 2):
            hosts = world.at(batch)
            world.roll(batch, until="undrain_hosts")
            for host, silence in alertmanager.active().items():
                says = f"{host}: edgetune has it out of service in rollout {world.rollout}"
                assert (silence["createdBy"], silence["comment"]) == ("edgetune", says)
                assert 0 < _until(silence) - clock.wall() <= BOUND
            assert alertmanager.active().keys() == set(hosts)
            world.step("undrain_hosts", batch)
            assert alertmanager.active() == {}
            assert {f"{host} {state}" for host in hosts for state in ("drain", "ready")} <= {*seen}
        seen.clear()
        world.roll_back()
        assert {f"{host} drain" for host in world.at(0)} <= {*seen}
        assert (alertmanager.active(), world.head.quarantined) == ({}, {})


@pytest.mark.parametrize("begin", [pytest.param(real, marks=needed)])
def test_alerts_of_a_rebooting_host_reach_nobody(begin: Any, tmp_path: Path) -> None:
    with begin() as alertmanager:
        world = _made(tmp_path, alertmanager)
        (host,) = world.at(0)
        other = next(iter(world.at(2)))
        for name in (host, other):
            alertmanager.fire(alertname="HostDown", host=name)
        world.roll(0, until="check_rebooted")
        assert _soon_heard(alertmanager, [other])
        world.roll(0)
        assert _soon_heard(alertmanager, sorted([host, other]))


def _soon_heard(alertmanager: Any, hosts: list[str]) -> bool:
    end = time.monotonic() + 60
    while alertmanager.heard() != hosts and time.monotonic() < end:
        time.sleep(0.1)
    return bool(alertmanager.heard() == hosts)


def _age(world: World, number: int, seconds: float) -> None:
    """Alertmanager was asked that much longer ago."""
    opened = as_owner(world.context, world.rollout)
    work = opened.batch(number)
    work.silence = replace(work.silence, at=work.silence.at - seconds)
    opened.save_batch(work)


def test_a_step_that_waits_renews_the_silence(world: World, alertmanager: InMemory) -> None:
    (host,) = world.at(0)
    world.roll(0, until="check_rebooted")
    before = alertmanager.active()[host]
    asked = len(alertmanager.asked)
    world.hosts.unreachable.add(host)
    world.step("check_rebooted", 0)
    assert len(alertmanager.asked) == asked
    _age(world, 0, 0.11 * BOUND)
    alertmanager.ahead = 100.0
    world.step("check_rebooted", 0)
    after = alertmanager.active()[host]
    assert (after["id"], len(alertmanager.kept)) == (before["id"], 1)
    assert _until(after) - _until(before) > 99
    # A clock that was set back.
    _age(world, 0, -3600)
    asked = len(alertmanager.asked)
    world.step("check_rebooted", 0)
    assert len(alertmanager.asked) > asked


def test_a_matcher_that_fits_a_host_of_another_pop_silences_nobody(
    tmp_path: Path, alertmanager: InMemory
) -> None:
    world = _made(tmp_path, alertmanager)
    document = inventory_document()
    twin = inventory_document()["pops"]["lab1"]
    twin["load_balancer"]["backend"] = "others"
    for host in twin["hosts"].values():
        host["port"] = 2222
    document["pops"]["lab2"] = twin
    write_yaml(tmp_path / "inventory.yaml", document)
    del world.context.inventory
    (host,) = world.at(0)
    world.step("begin_drain", 0)
    assert alertmanager.asked == []
    told = f"lab1/{host}, lab2/{host} have the same alertmanager.matchers"
    kept = world.batch(0).silence
    assert kept == Silence([host], kept.at if kept else 0.0, told)
    matchers = {"host": "{name}", "pop": "{pop}"}
    settings = replace(world.context.config.alertmanager, matchers=matchers)
    world.context.config = replace(world.context.config, alertmanager=settings)
    _age(world, 0, BOUND)
    world.step("check_drained", 0)
    assert alertmanager.active().keys() == {host}


def test_a_batch_that_an_earlier_version_recorded_is_read(world: World) -> None:
    text = world.batch(0).document().replace('"silence": null', '"wait": null')
    assert "silence" not in text
    assert read_batch(world.rollout, 0, text).silence is None


Make = Callable[[str], World]


@pytest.fixture
def make(tmp_path: Path, alertmanager: InMemory, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes worlds; whoever keeps silences for the newest may die just before that, and after."""
    made: list[World] = []

    def keep(*given: Any) -> str:
        with made[-1].moments.around("silences kept"):
            return keep_silences(*given)

    def new(name: str) -> World:
        alertmanager.kept.clear()
        alertmanager.ahead = 0.0
        made.append(_made(tmp_path / name, alertmanager))
        return made[-1]

    monkeypatch.setattr(silences, "keep_silences", keep)
    return new


def _change(world: World) -> None:
    world.roll_all({**world.mark("changing"), "end_batch": 1})


@pytest.mark.slow
def test_wherever_the_owner_dies_hosts_are_silenced_until_the_batch_is_ended(
    alertmanager: InMemory, make: Make
) -> None:
    for moment, world in at_every_moment(make, _change):
        assert world.batch(0).finished, moment
        assert alertmanager.active() == {}, moment


@pytest.mark.slow
def test_what_a_stop_leaves_ends_by_itself_within_the_bound_unless_a_rollback_renews_and_ends_it(
    alertmanager: InMemory, make: Make
) -> None:
    def take_back(world: World) -> None:
        left, died = alertmanager.active(), world.moments.seen[-1]
        for host, silence in left.items():
            assert _until(silence) <= clock.wall() + BOUND, died
            assert world.batch(0).silence.hosts == [host]
        out = {name for name, state in world.balancer.state.items() if state != "ready"}
        assert out <= left.keys(), died
        # Whoever died had put it long ago.
        alertmanager.ahead += 0.9 * BOUND
        begun = world.mark("rolling_back")
        _watch(world, alertmanager)
        world.roll_all(begun)
        assert world.mark("rolled_back")
        renewed = {own["id"] for own in alertmanager.silences()}
        assert {own["id"] for own in left.values()} == renewed or not left

    for moment, world in at_every_moment(make, _change, take_back):
        assert world.head.state == "rolled_back", moment
        assert alertmanager.active() == {}, moment
