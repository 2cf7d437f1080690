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

from edgetune.base import errors
from edgetune.base.documents.reading import LARGEST
from edgetune.base.documents.steps import REASONS, STEPS, StepTaken, read_steps, steps_key
from edgetune.base.errors import DamagedError, EdgetuneError
from edgetune.report.action import run_step
from edgetune.rollout.record import step_times
from edgetune.rollout.record.step_times import steps_of
from edgetune.rollout.store.records import SqliteStore
from tests.support import ROOT
from tests.support.cases import cases
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


def kept(world: World) -> Mapping[str, str]:
    return world.context.store.list(steps_key(""))


@pytest.mark.parametrize("case", cases(Path(__file__).with_name("step_times.yaml")))
def test_what_tasks_count(world: World, clock: VirtualClock, case: dict[str, Any]) -> None:
    for name, told, seconds, *more in case["steps"]:
        rest = more[0] if more else {}
        if isinstance(told, str):
            given = ("f", "x", "is wrong") if told == "InputError" else ("no",)
            told = getattr(errors, told)(*given)
        done, _ = take(world, step(name, told), epoch=rest.get("epoch", 1))
        assert done is not (isinstance(told, Exception) or bool(told.get("failed")))
        clock.wait(seconds)
        clock.set(rest.get("set", 0.0))
        clock.begin_process()
    assert counted(world) == {name: StepTaken(*own) for name, own in case["counted"].items()}
    assert bool(kept(world)) == bool(case["counted"])


def test_a_task_counts_each_step_that_it_takes(world: World, clock: VirtualClock) -> None:
    apply = step("apply_tuning", {"next": "verify_hosts"}, clock=clock, takes=3.0)
    verify = step("verify_hosts", {"next": "undrain_hosts"}, clock=clock, takes=0.5)
    assert take(world, apply, verify)[0]
    assert take(world, step("apply_tuning", clock=clock, takes=1.0))[0]
    with pytest.raises(ZeroDivisionError):
        take(world, step("verify_hosts", ZeroDivisionError()))
    # A step behind one that failed is not taken.
    failed = step("apply_tuning", {"failed": ["e000"], "error": "no", "next": "verify_hosts"})
    take(world, failed, step("verify_hosts"))
    assert counted(world) == {
        "apply_tuning": StepTaken(3, 4.0, {"failed": 1}),
        "verify_hosts": StepTaken(2, 0.5, {"other": 1}),
    }


def test_every_error_has_a_reason_that_is_known_and_steps_are_actions() -> None:
    own = {each for each in vars(errors).values() if isinstance(each, type)}
    own = {each for each in own if issubclass(each, EdgetuneError) and each is not EdgetuneError}
    # Without a store or a claim nothing is written; without a configuration no step begins.
    silent = {errors.StoreError, errors.NoAnswerError, errors.FencedError, errors.UnconfiguredError}
    assert {each.reason.fget(each.__new__(each)) for each in own - silent} <= {*REASONS}
    assert {path.stem for path in (ROOT / "actions").glob("*.py")} >= {*STEPS}


class TestNoStepFailsForIt:
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

    def test_a_damaged_document_is_begun_anew_and_one_of_a_later_version_stays(
        self, world: World
    ) -> None:
        key, later = steps_key(world.rollout), '{"schema": 99}'
        world.context.store.put(key, "{")
        assert take(world, step("apply_tuning"))[0]
        assert counted(world) == {"apply_tuning": StepTaken(1)}
        world.context.store.put(key, later)
        assert take(world, step("apply_tuning"))[0]
        assert world.context.store.get(key) == later

    def test_an_id_that_is_none_makes_no_key(self, world: World) -> None:
        refused = errors.InputError("parameter", "rollout", "there is none")
        for rollout in ("nobody", "../x", "a b", "x" * 5000):
            take(world, step("apply_tuning", refused), rollout=rollout)
        assert kept(world) == {}


def test_the_document_does_not_grow_with_the_steps(world: World) -> None:
    sizes = []
    for _ in range(2):
        for name in STEPS * 2:
            told = {"failed": ["e000"], "error": "no", "verdict": "improved"}
            take(world, step(name, told))
        sizes.append(len(kept(world)[steps_key(world.rollout)]))
    assert sizes[0] == sizes[1] < 2000


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
