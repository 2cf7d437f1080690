# SPDX-License-Identifier: Apache-2.0
"""The clock of the controller is set by hours while times of the record lie before that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.documents.baseline import Baseline, Facts, Load
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.drain_hosts import begin_drain
from tests.support.scenarios import Scenario, scenarios
from tests.support.virtual_clock import VirtualClock
from tests.support.world import BiosWorld, EmptyWorld, World

HOURS = 6 * 3600.0
SET = pytest.mark.parametrize("seconds", [HOURS, -HOURS], ids=["forward", "back"])
DEADLINE = 600.0
FIRST = 0


@pytest.fixture(params=["same step", "next step", "another boot"])
def between(request: pytest.FixtureRequest, clock: VirtualClock) -> Any:
    """Sets the clock, and says where the rollout goes on afterwards."""

    def set_clock(seconds: float) -> None:
        clock.set(seconds)
        if request.param != "same step":
            clock.begin_process("another" if request.param == "another boot" else "")

    return set_clock


@pytest.fixture
def world(tmp_path: Path, clock: VirtualClock) -> Iterator[BiosWorld]:
    """A rollout of a BIOS setting that is about to change its first host."""
    deadlines = dict.fromkeys(("drain_deadline", "reboot_deadline", "health_deadline"), DEADLINE)
    made = BiosWorld(tmp_path, reset_after=DEADLINE / 2, **deadlines)
    made.enter(force_restart=True)
    yield made


def _step(world: EmptyWorld, function: Any) -> tuple[int, list[str]]:
    """How many hosts are awaited, and which failed."""
    result = world.step(function, FIRST)
    return result["waiting"], result["failed"]


class ClockMoves(Scenario):
    def __init__(self, world: EmptyWorld, moves: VirtualClock, set_clock: Any) -> None:
        super().__init__(world, moves)
        self._set_clock = set_clock

    def set_clock(self, _: object) -> None:
        self._set_clock()

    def looks(self, expected: list[Any]) -> None:
        for step, waiting, failed in expected:
            self.looks_at(step, waiting, failed)


@SET
@pytest.mark.parametrize("case", scenarios(__file__))
def test_a_deadline_is_as_long_as_it_is(
    case: Any, world: BiosWorld, clock: VirtualClock, between: Any, seconds: float
) -> None:
    ClockMoves(world, clock, lambda: between(seconds)).play(case)


@pytest.mark.slow
@pytest.mark.parametrize("skew", [0.0, 30.0, -30.0, 90.0, -90.0, HOURS, -HOURS])
def test_steps_that_take_turns_on_two_machines_reach_a_deadline_in_its_time(
    world: BiosWorld, clock: VirtualClock, skew: float
) -> None:
    """Their clocks differ, and a step runs every 5 s on the other one."""
    (host,) = world.at(FIRST)
    world.balancer.sessions[host] = 3
    world.step(begin_drain, FIRST)
    polls = 0
    waiting = 1
    while waiting and polls < 3 * DEADLINE / 5:
        polls += 1
        clock.set(skew if polls % 2 else -skew)
        clock.begin_process(f"machine-{polls % 2}")
        clock.wait(5)
        waiting = _step(world, check_drained)[0]
    assert (waiting, world.at(FIRST)) == (0, {host: "skipped"})
    # Once, and not once a turn, the difference of believed clocks counts.
    assert DEADLINE - 35 < 5 * polls < DEADLINE + 70


def test_a_record_of_an_earlier_version_waits_from_now(
    world: BiosWorld, clock: VirtualClock
) -> None:
    """It holds no reading of the clocks, and its times lie in the future by now."""
    (host,) = world.at(FIRST)
    world.balancer.sessions[host] = 3
    world.step(begin_drain, FIRST)
    key = f"edgetune.batch.{world.rollout}.{FIRST}"
    document = json.loads(world.context.store.get(key) or "")
    del document["clock"]
    world.context.store.put(key, json.dumps(document))
    clock.set(-HOURS)
    clock.begin_process()
    assert _step(world, check_drained) == (1, [])
    clock.wait(DEADLINE + 1)
    clock.begin_process()
    assert _step(world, check_drained) == (0, [])
    assert world.at(FIRST) == {host: "skipped"}


def test_a_baseline_never_ends_before_it_began(tmp_path: Path, clock: VirtualClock) -> None:
    world = World(tmp_path)
    world.mark("baseline")
    opened = as_owner(world.context, world.rollout)
    nothing = Facts({}, {}, {}, {}, {}, Load(None, None))
    opened.save_baseline(Baseline(0.0, 1.0, 1.0, [], {}, nothing, load=1.0))
    clock.set(-HOURS)
    clock.begin_process()
    world.mark("changing")
    assert world.head.baseline[0] <= world.head.baseline[1]
    assert world.head.state == "changing"
