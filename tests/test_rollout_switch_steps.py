# SPDX-License-Identifier: Apache-2.0
"""The kill switch: nothing is changed while it is set, and steps go on after it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgetune.errors import RefusedError
from edgetune.rollout import change, drain, reboot, record, status, switch
from tests.world import World, changing


@pytest.fixture
def world(tmp_path: Path) -> World:
    return changing(tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock by which a look at the switch holds for a while."""
    now = [1000.0]
    fake = SimpleNamespace(time=record.time.time, monotonic=lambda: now[0])
    monkeypatch.setattr(record, "time", fake)
    return now


STEPS = (
    drain.drain_hosts,
    drain.check_drained,
    change.apply_tuning,
    reboot.reboot_hosts,
    reboot.check_rebooted,
    change.verify_hosts,
    drain.undrain_hosts,
)


def test_every_step_is_stopped_and_goes_on_afterwards(world: World) -> None:
    for step in STEPS:
        switch.stop_all(world.site, by="ana", reason="errors")
        log, changing_verbs = list(world.balancer.log), world.hosts.changing()
        with pytest.raises(RefusedError, match=r"everything is stopped \(edgetune.stop_all: "):
            world.step(step, 2)
        assert (world.balancer.log, world.hosts.changing()) == (log, changing_verbs)
        switch.resume_all(world.site)
        world.step(step, 2)
        world.hosts.reboot()
    assert set(world.at(2).values()) == {"done"}


def test_hosts_that_were_not_asked_yet_are_not_asked(world: World, clock: list[float]) -> None:
    world.roll(2, until=change.apply_tuning)
    first = next(iter(world.at(2)))

    def stop(moment: str) -> None:
        if moment == f"after {first} apply":
            switch.stop_all(world.site)
            clock[0] += 1.1

    world.moments.at = stop
    with pytest.raises(RefusedError, match="everything is stopped"):
        world.step(change.apply_tuning, 2)
    assert world.hosts.told("apply") == [first]
    world.moments.at = lambda moment: None
    switch.resume_all(world.site)
    world.roll(2)
    assert world.hosts.tuned == set(world.at(2))
    assert set(world.at(2).values()) == {"done"}


def test_servers_that_were_not_drained_yet_are_not_drained(
    world: World, clock: list[float]
) -> None:
    first = next(iter(world.at(2)))

    def stop(moment: str) -> None:
        if moment == f"after {first} drain":
            switch.stop_all(world.site)
            clock[0] += 1.1

    world.moments.at = stop
    with pytest.raises(RefusedError, match="everything is stopped"):
        world.step(drain.drain_hosts, 2)
    assert world.balancer.log == [(first, "drain")]
    switch.resume_all(world.site)
    world.roll(2)
    assert set(world.balancer.state.values()) == {"ready"}


def test_one_look_at_the_switch_holds_for_a_second(world: World, clock: list[float]) -> None:
    world.roll(2, until=change.apply_tuning)
    looks: list[str] = []
    real = world.site.store.get

    def get(key: str) -> str | None:
        if key == switch.STOP_KEY:
            looks.append(key)
        return real(key)

    world.site.store.get = get  # type: ignore[method-assign]
    world.step(change.apply_tuning, 2)
    assert (len(world.hosts.told("apply")), len(looks)) == (3, 1)


def test_a_rollback_is_stopped_too(world: World) -> None:
    world.roll(0)
    batch = world.mark("rolling_back")["first_batch"]
    switch.stop_all(world.site)
    for call in (
        lambda: world.step(drain.drain_hosts, batch),
        lambda: world.step(change.restore_hosts, batch, live=True),
        lambda: world.mark("rolled_back"),
    ):
        with pytest.raises(RefusedError, match="everything is stopped"):
            call()
    switch.resume_all(world.site)
    world.roll(batch)
    assert world.hosts.tuned == set()


@pytest.mark.parametrize("value", ["true", "1", "yes", "stop it, please", "TRUE\n"])
def test_the_key_set_by_hand_stops(world: World, value: str) -> None:
    world.site.store.put("edgetune.stop_all", value)
    with pytest.raises(RefusedError, match="everything is stopped"):
        world.step(drain.drain_hosts, 0)
    text = status.rollout_status(world.site)["text"]
    assert f"Everything is stopped ({value.strip()}); resume_all permits changes again." in text


@pytest.mark.parametrize("value", ["", "false", "0", "no", "False\n"])
def test_the_key_taken_back_by_hand_permits(world: World, value: Any) -> None:
    world.site.store.put("edgetune.stop_all", value)
    world.step(drain.drain_hosts, 0)
    assert "Everything is stopped" not in status.rollout_status(world.site)["text"]
