# SPDX-License-Identifier: Apache-2.0
"""Hosts that do not reboot by themselves, and hosts that never come back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from edgetune.inventory import Host
from edgetune.rollout.steps.check_rebooted import check_rebooted
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from tests.support.scenarios import Scenario, bios_scenario, scenarios
from tests.support.virtual_clock import VirtualClock
from tests.support.world import BiosWorld

FIRST, SECOND = 0, 2
RESET_AFTER, DEADLINE = 30.0, 100.0


@pytest.fixture
def world(tmp_path: Path) -> BiosWorld:
    """Its rollout changes hosts; nobody is told to reboot yet."""
    made = BiosWorld(tmp_path, reset_after=RESET_AFTER, reboot_deadline=DEADLINE)
    made.enter(force_restart=True)
    return made


class ResetMoves(Scenario):
    """Moves of the first host of a batch, which is told to reboot."""

    def told(self, heeds: list[str]) -> None:
        host = next(iter(self.world.at(self._batch)))
        self.world.hosts.heeds[host] = set(heeds)
        self.until("reboot_hosts")
        self.step("reboot_hosts")

    def check(self, expected: list[Any]) -> None:
        for waiting, failed in expected:
            self.looks_at("check_rebooted", waiting, failed)
            self.world.hosts.reboot()

    def later(self, expected: list[Any]) -> None:
        for each in expected:
            self.wait(RESET_AFTER + 1)
            self.check([each])

    def passes(self, times: int) -> None:
        for _ in range(times):
            self.wait(RESET_AFTER + 1)
            self.step("check_rebooted")
            self.world.hosts.reboot()

    def given_up(self, why: str) -> None:
        self.passes(9)
        assert self.result["failed"] == [self._names["HOST"]]
        self.then({f"of.{self._names['HOST']}.error": why})


@pytest.mark.parametrize("case", scenarios(__file__))
def test_hosts_are_reset_as_their_plan_shows(
    case: Any, tmp_path: Path, clock: VirtualClock
) -> None:
    site = {"reset_after": RESET_AFTER, "reboot_deadline": DEADLINE}
    world = bios_scenario(case[0], tmp_path, site, {"force_restart": True})
    ResetMoves(world, clock).play(case)


def _told(world: BiosWorld, *heeds: str) -> str:
    """The first host, told to reboot; of the ways to restart it heeds only these."""
    (host,) = world.at(FIRST)
    world.hosts.heeds[host] = set(heeds)
    world.roll(FIRST, until=reboot_hosts)
    world.step(reboot_hosts, FIRST)
    return host


def _check(world: BiosWorld, batch: int = FIRST) -> tuple[int, list[str]]:
    result = world.step(check_rebooted, batch)
    world.hosts.reboot()
    return result["waiting"], result["failed"]


@pytest.mark.parametrize("meanwhile", ["goes down", "comes back"])
def test_a_host_that_is_on_its_way_by_now_is_not_reset(
    world: BiosWorld, clock: VirtualClock, meanwhile: str
) -> None:
    """It answered when all were asked, and the others of its batch took their time."""
    host = _told(world, "reboot")
    real, asked = world.hosts.ask, []

    def ask(hosts: object, verb: str, *more: object, **named: object) -> object:
        asked.append(verb)
        if len(asked) == 2 and meanwhile == "goes down":
            world.hosts.unreachable.add(host)
        elif len(asked) == 2:
            world.hosts.reboot()
        return real(hosts, verb, *more, **named)  # type: ignore[arg-type]

    world.hosts.ask = ask  # type: ignore[method-assign, assignment]
    clock.wait(RESET_AFTER + 1)
    assert world.step(check_rebooted, FIRST)["waiting"] == 1
    assert (asked, world.bmcs.told("reset")) == (["facts", "facts"], [])
    if meanwhile == "comes back":
        assert _check(world) == (0, [])


@pytest.mark.parametrize("way_out", ["reset", "evidence"])
def test_bmcs_of_a_batch_are_asked_all_at_once(
    world: BiosWorld, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, way_out: str
) -> None:
    """One by one, BMCs that are gone with their hosts would outlast the action."""
    world.roll(SECOND, until=reboot_hosts)
    hosts = list(world.at(SECOND))
    for host in hosts:
        world.hosts.heeds[host] = set()
    world.step(reboot_hosts, SECOND)
    asked, real = [], world.bmcs.ask

    def ask(hosts: Sequence[Host], verb: str, *more: Any, **named: Any) -> Any:
        asked.append((verb, [host.name for host in hosts]))
        return real(hosts, verb, *more, **named)

    monkeypatch.setattr(world.bmcs, "ask", ask)
    if way_out == "evidence":
        world.hosts.unreachable.update(hosts)
    clock.wait(DEADLINE + 1)
    _check(world, SECOND)
    assert asked == [(way_out, hosts)]
