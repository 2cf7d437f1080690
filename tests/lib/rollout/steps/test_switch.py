# SPDX-License-Identifier: Apache-2.0
"""The kill switch: nothing is changed while it is set, and steps go on after it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from edgetune.connections import Database
from edgetune.errors import RefusedError, StoreError
from edgetune.rollout.kill_switch import RESUMED_KEY, STOP_KEY, refuse_if_stopped, stopped_by
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.check_rebooted import check_rebooted
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.resume_all import resume_all
from edgetune.rollout.steps.rollout_status import rollout_status
from edgetune.rollout.steps.stop_all import stop_all
from edgetune.rollout.steps.undrain_hosts import undrain_hosts
from edgetune.rollout.steps.verify_hosts import verify_hosts
from tests.support.virtual_clock import VirtualClock
from tests.support.world import World, changing


@pytest.fixture
def world(tmp_path: Path) -> World:
    return changing(tmp_path)


STEPS = (
    drain_hosts,
    check_drained,
    apply_tuning,
    reboot_hosts,
    check_rebooted,
    verify_hosts,
    undrain_hosts,
)


def test_every_step_is_stopped_and_goes_on_afterwards(world: World) -> None:
    for step in STEPS:
        stop_all(world.context, requested_by="ana", reason="errors")
        log, changing_verbs = list(world.balancer.log), world.hosts.changing()
        with pytest.raises(RefusedError, match=r"everything is stopped \(edgetune.stop_all: "):
            world.step(step, 2)
        assert (world.balancer.log, world.hosts.changing()) == (log, changing_verbs)
        resume_all(world.context)
        world.step(step, 2)
        world.hosts.reboot()
    assert set(world.at(2).values()) == {"done"}


def test_one_look_at_the_switch_holds_for_a_second(world: World, clock: VirtualClock) -> None:
    world.roll(2, until=apply_tuning)
    looks: list[str] = []
    real = world.context.store.list

    def listed(prefix: str) -> Mapping[str, str]:
        if prefix == STOP_KEY:
            looks.append(prefix)
        return real(prefix)

    world.context.store.list = listed  # type: ignore[method-assign]
    world.step(apply_tuning, 2)
    assert (len(world.hosts.told("apply")), len(looks)) == (3, 1)


def test_the_key_set_by_hand_stops(world: World) -> None:
    for value in ("", "false", "0", "no", "False\n"):
        world.context.store.put(STOP_KEY, value)
        assert not stopped_by(world.context), "before the first stop such a key permits"
    for value in ("true", "1", "yes", "stop it, please", "TRUE\n"):
        world.context.store.put(STOP_KEY, value)
        stops(world)
        text = rollout_status(world.context)["text"]
        assert text.startswith(
            f"EVERYTHING IS STOPPED: {value.strip()}\n  resume:     st2 run edgetune.resume_all\n"
        )
        permits = "st2 run edgetune.resume_all permits changes again"
        in_full = rollout_status(world.context, world.rollout)["text"]
        assert f"Everything is stopped ({value.strip()}); {permits}." in in_full


HARMLESS = ["", "false", "0", "no", "False\n", "true", "resumed by ana, permit 0"]


def stops(world: World) -> None:
    with pytest.raises(RefusedError, match="everything is stopped"):
        world.step(drain_hosts, 0)
    assert stopped_by(world.context)


@pytest.mark.parametrize("by_hand", [True, False])
def test_no_value_of_the_key_lifts_a_stop_that_was_seen(world: World, by_hand: bool) -> None:
    for value in HARMLESS:
        if by_hand:
            world.context.store.put(STOP_KEY, "true")
            stops(world)
        else:
            stop_all(world.context, requested_by="ana")
        world.context.store.put(STOP_KEY, value)
        stops(world)
        resume_all(world.context, requested_by="bo")
        world.step(drain_hosts, 0)


def delete(world: World, key: str) -> None:
    with Database(world.config["records"]).transaction() as db:
        db.execute("DELETE FROM records WHERE key = ?", (key,))


def test_a_key_that_is_deleted_lifts_no_stop(world: World) -> None:
    stop_all(world.context, requested_by="ana", reason="errors")
    delete(world, STOP_KEY)
    stops(world)
    assert (
        "stopped by ana: errors; an empty or missing key lifts no stop"
        in rollout_status(world.context, world.rollout)["text"]
    )


def test_after_a_resume_every_other_value_stops_again(world: World) -> None:
    """Also the one by which it was stopped before."""
    for value in (*HARMLESS, "yes"):
        world.context.store.put(STOP_KEY, "yes")
        resume_all(world.context)
        world.context.store.put(STOP_KEY, value)
        stops(world)


def test_a_copy_of_the_permit_lifts_no_stop_that_came_after_it(world: World) -> None:
    stop_all(world.context)
    resume_all(world.context)
    permit = world.context.store.get(STOP_KEY) or ""
    assert stopped_by(world.context) == ""
    world.context.store.put(STOP_KEY, "true")
    stops(world)
    world.context.store.put(STOP_KEY, permit)
    stops(world)


def test_a_permit_that_cannot_be_read_permits_nothing(world: World) -> None:
    for text in ("", "{", "7", "{}", '{"permit": 7}', '{"permit": ""}'):
        world.context.store.put(RESUMED_KEY, text)
        world.context.store.put(STOP_KEY, "")
        stops(world)
        resume_all(world.context)
        world.step(drain_hosts, 0)


def test_a_stop_by_somebody_who_may_write_that_key_alone_stops(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = world.context.store.put

    def limited(key: str, value: str) -> None:
        if key != STOP_KEY:
            raise StoreError("403")
        put(key, value)

    monkeypatch.setattr(world.context.store, "put", limited)
    assert stop_all(world.context, requested_by="ana")["stopped"]
    with pytest.raises(RefusedError, match="everything is stopped"):
        refuse_if_stopped(world.context)
    with pytest.raises(StoreError, match="403"):
        resume_all(world.context, requested_by="ana")
    assert stopped_by(world.context) == "stopped by ana"


def test_a_resume_says_so_when_it_is_stopped_again_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_all(world.context, requested_by="ana")
    put = world.context.store.put

    def stopped_again(key: str, value: str) -> None:
        put(key, "true" if key == STOP_KEY else value)

    monkeypatch.setattr(world.context.store, "put", stopped_again)
    with pytest.raises(RefusedError, match="everything was stopped again at once"):
        resume_all(world.context)
