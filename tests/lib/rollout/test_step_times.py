# SPDX-License-Identifier: Apache-2.0
"""What tasks count of their steps is how long these took and how they ended, and hinders none."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgetune import errors
from edgetune.action import run_step
from edgetune.documents.reading import LARGEST
from edgetune.documents.steps import REASONS, STEPS, StepTaken, read_steps, steps_key
from edgetune.errors import DamagedError, EdgetuneError
from edgetune.rollout import step_times
from edgetune.rollout.step_times import steps_of
from edgetune.rollout.store import SqliteStore
from tests.support import ROOT
from tests.support.virtual_clock import VirtualClock
from tests.support.world import World

DONE = {"failed": [], "error": "", "message": "", "next": "", "retry_after": 0}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(autouse=True)
def clock(clock: VirtualClock) -> VirtualClock:
    """It stands still unless it is told to go on."""
    clock.look = 0.0
    clock.begin_process()
    return clock


def step(
    name: str, *told: Mapping[str, Any], clock: VirtualClock | None = None, takes: float = 0.0
) -> Any:
    """A step of that name; it tells one after the other, and raises what is an error."""
    answers: Iterator[Any] = iter(told or ({},))

    def own(context: object, **given: object) -> Mapping[str, Any]:
        if clock:
            clock.wait(takes)
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return {**DONE, **answer}

    own.__name__ = name
    return own


def take(world: World, *steps: Any, epoch: int = 1, rollout: str = "") -> tuple[bool, Any]:
    """One task with these steps."""
    given = {"rollout": rollout or world.rollout, "epoch": epoch, "batch": 0}
    return run_step(steps[0], world.config, then=steps[1:], **given)


def counted(world: World) -> dict[str, StepTaken]:
    return steps_of(world.context, world.rollout).steps


def test_a_task_counts_each_step_that_it_takes(world: World, clock: VirtualClock) -> None:
    apply = step("apply_tuning", {"next": "verify_hosts"}, clock=clock, takes=3.0)
    verify = step("verify_hosts", {"next": "undrain_hosts"}, clock=clock, takes=0.5)
    assert take(world, apply, verify)[0]
    assert take(world, step("apply_tuning", clock=clock, takes=1.0))[0]
    assert counted(world) == {"apply_tuning": StepTaken(2, 4.0), "verify_hosts": StepTaken(1, 0.5)}


def test_a_failure_is_counted_with_its_reason(world: World) -> None:
    assert not take(world, step("verify_hosts", {"failed": ["e000"], "error": "sick"}))[0]
    assert not take(world, step("verify_hosts", errors.DrainError("HAProxy does not answer")))[0]
    assert not take(world, step("verify_hosts", errors.InputError("f", "x", "is wrong")))[0]
    assert not take(world, step("verify_hosts", EdgetuneError("new")))[0]
    with pytest.raises(ZeroDivisionError):
        take(world, step("verify_hosts", ZeroDivisionError()))
    failures = {"failed": 1, "drain": 1, "input": 1, "other": 2}
    assert counted(world) == {"verify_hosts": StepTaken(5, 0.0, failures)}


def test_a_step_behind_one_that_failed_is_not_counted(world: World) -> None:
    failed = step("apply_tuning", {"failed": ["e000"], "error": "no", "next": "verify_hosts"})
    take(world, failed, step("verify_hosts"))
    assert counted(world) == {"apply_tuning": StepTaken(1, 0.0, {"failed": 1})}


def test_every_error_has_a_reason_that_is_known() -> None:
    own = {each for each in vars(errors).values() if isinstance(each, type)}
    own = {each for each in own if issubclass(each, EdgetuneError) and each is not EdgetuneError}
    # Without a store or a claim nothing is written; without a configuration no step begins.
    silent = {errors.StoreError, errors.NoAnswerError, errors.FencedError, errors.UnconfiguredError}
    reasons = {each.reason.fget(each.__new__(each)) for each in own - silent}  # type: ignore[attr-defined]
    assert reasons <= {*REASONS}


def test_the_steps_are_actions() -> None:
    assert {path.stem for path in (ROOT / "actions").glob("*.py")} >= {*STEPS}


class TestWaits:
    def test_a_drain_lasts_from_its_beginning_until_nobody_is_awaited(
        self, world: World, clock: VirtualClock
    ) -> None:
        take(world, step("drain_hosts", {"waiting": 2, "next": "check_drained"}))
        clock.wait(20)
        check = step("check_drained", {"waiting": 1, "next": "check_drained"}, {"waiting": 0})
        take(world, check)
        assert set(counted(world)) == {"drain_hosts"}
        clock.wait(10)
        take(world, check)
        assert counted(world)["check_drained"] == StepTaken(1, 30.0)

    def test_a_reboot_lasts_until_the_last_host_is_back(
        self, world: World, clock: VirtualClock
    ) -> None:
        for _ in range(2):
            take(world, step("reboot_hosts", {"next": "check_rebooted", "retry_after": 60}))
            clock.wait(60)
            take(world, step("check_rebooted", {"waiting": 1, "next": "verify_hosts"}))
            clock.wait(15)
            take(world, step("check_rebooted", {"waiting": 0, "next": "verify_hosts"}))
        assert counted(world)["check_rebooted"] == StepTaken(2, 150.0)

    def test_hosts_that_a_rollback_finds_on_the_way_are_awaited(
        self, world: World, clock: VirtualClock
    ) -> None:
        take(world, step("drain_hosts", {"next": "wait_for_hosts"}))
        clock.wait(40)
        take(world, step("check_rebooted", {"waiting": 1, "next": "wait_for_hosts"}))
        clock.wait(5)
        take(world, step("check_rebooted", {"failed": ["e000"], "error": "gone"}))
        assert counted(world)["check_rebooted"] == StepTaken(1, 45.0, {"failed": 1})

    def test_a_wall_clock_that_is_set_makes_no_wait_longer(
        self, world: World, clock: VirtualClock
    ) -> None:
        for set_by in (3600.0, -7200.0):
            take(world, step("reboot_hosts", {"next": "check_rebooted"}))
            clock.wait(60)
            clock.set(set_by)
            clock.begin_process()
            take(world, step("check_rebooted"))
        assert counted(world)["check_rebooted"] == StepTaken(2, 120.0)

    @pytest.mark.parametrize("following", ["drain_hosts", "restore_live"])
    def test_a_batch_that_may_not_begin_yet_drains_nothing(
        self, world: World, clock: VirtualClock, following: str
    ) -> None:
        take(world, step("drain_hosts", {"waiting": 4, "next": following, "retry_after": 3600}))
        clock.wait(36000)
        take(world, step("drain_hosts", {"next": "apply_tuning"}, clock=clock, takes=2.0))
        assert counted(world) == {"drain_hosts": StepTaken(1, 2.0)}

    def test_what_another_owner_awaited_is_not_awaited_since_then(
        self, world: World, clock: VirtualClock
    ) -> None:
        take(world, step("reboot_hosts", {"next": "check_rebooted"}))
        clock.wait(3600)
        take(world, step("check_rebooted", clock=clock, takes=1.0), epoch=2)
        assert counted(world)["check_rebooted"] == StepTaken(1, 1.0)


def test_a_soak_without_a_look_to_be_taken_counts_none(world: World) -> None:
    for verdict in ("", "inconclusive", ""):
        take(world, step("compare_groups", {"verdict": verdict, "decision": "wait"}))
    assert counted(world)["compare_groups"].count == 1


def test_steps_that_move_no_rollout_on_count_nothing(world: World) -> None:
    take(world, step("sample_hosts"))
    take(world, step("rollout_status"))
    assert world.context.store.list(steps_key("")) == {}


class TestNoStepFailsForIt:
    def test_an_owner_of_an_earlier_epoch_writes_nothing(self, world: World) -> None:
        take(world, step("apply_tuning"), epoch=2)
        assert take(world, step("apply_tuning"), epoch=1)[0]
        take(world, step("apply_tuning", errors.FencedError("has lost its claim")), epoch=2)
        assert counted(world) == {"apply_tuning": StepTaken(1)}

    @pytest.mark.parametrize("method", ["list", "put"])
    def test_a_store_that_goes_away_costs_the_count_alone(
        self, world: World, monkeypatch: pytest.MonkeyPatch, method: str
    ) -> None:
        def away(*given: object) -> None:
            raise errors.StoreError("is away")

        monkeypatch.setattr(SqliteStore, method, away)
        assert take(world, step("apply_tuning"))[0]
        monkeypatch.undo()
        assert counted(world) == {}

    def test_a_store_that_hangs_is_not_waited_for(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hangs = threading.Event()

        def hang(*given: object) -> Mapping[str, str]:
            hangs.wait(60)
            raise errors.StoreError("is away")

        monkeypatch.setattr(step_times, "PATIENCE", 0.01)
        monkeypatch.setattr(SqliteStore, "list", hang)
        began = time.monotonic()
        try:
            assert take(world, step("apply_tuning"))[0]
            assert time.monotonic() - began < 50
        finally:
            hangs.set()

    def test_a_damaged_document_is_begun_anew(self, world: World) -> None:
        world.context.store.put(steps_key(world.rollout), "{")
        assert take(world, step("apply_tuning"))[0]
        assert counted(world) == {"apply_tuning": StepTaken(1)}

    def test_that_of_a_later_version_stays(self, world: World) -> None:
        later = '{"schema": 99}'
        world.context.store.put(steps_key(world.rollout), later)
        assert take(world, step("apply_tuning"))[0]
        assert world.context.store.get(steps_key(world.rollout)) == later

    @pytest.mark.parametrize("rollout", ["nobody", "../x", "a b", "x" * 5000])
    def test_an_id_that_is_none_makes_no_key(self, world: World, rollout: str) -> None:
        refused = step("apply_tuning", errors.InputError("parameter", "rollout", "there is none"))
        take(world, refused, rollout=rollout)
        assert world.context.store.list(steps_key("")) == {}


def test_the_document_does_not_grow_with_the_steps(world: World) -> None:
    def size() -> int:
        return len(world.context.store.list(steps_key(""))[steps_key(world.rollout)])

    for name in STEPS * 2:
        verdict = {"verdict": "improved"}
        take(world, step(name, {"failed": ["e000"], "error": "no", **verdict}))
    once = size()
    for name in STEPS * 2:
        take(world, step(name, {"failed": ["e000"], "error": "no"}))
    assert size() == once < 2000


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ({"rollout": "x"}, "rollout is that of another rollout"),
        ({"steps": {"a": {"count": -1}}}, "steps.a counts less than nothing"),
        ({"steps": {"a": {"failures": {"b": -1}}}}, "steps.a counts less than nothing"),
        ({"steps": {"a": {"seconds": 2 * LARGEST}}}, "steps.a.seconds must be a finite number"),
    ],
)
def test_a_damaged_document_is_refused(damage: dict[str, Any], named: str) -> None:
    with pytest.raises(DamagedError, match=named.replace(" ", ".*")):
        read_steps("r", json.dumps({"schema": 4, "rollout": "r", **damage}))
