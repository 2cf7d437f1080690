# SPDX-License-Identifier: Apache-2.0
"""Rollbacks: of a sick PoP, of single hosts, called twice, without room."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from edgetune.documents.head import Head
from edgetune.errors import EdgetuneError, FencedError
from edgetune.rollout import lease
from edgetune.rollout.lease import as_owner
from edgetune.rollout.steps.check_health import check_health
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.set_rollout_state import set_rollout_state
from edgetune.rollout.steps.take_over_for_rollback import take_over_for_rollback
from edgetune.rollout.steps.take_over_rollout import take_over, take_over_rollout
from edgetune.rollout.steps.verify_hosts import verify_hosts
from tests.support.builders import reading
from tests.support.scenarios import Scenario, scenarios
from tests.support.world import World, changing


@pytest.fixture
def world(tmp_path: Path) -> World:
    """The test group is changed: one host, then three."""
    made = changing(tmp_path)
    made.roll_all({"first_batch": 0, "end_batch": 4})
    return made


class RoomMoves(Scenario):
    """Moves of hosts that no batch has changed."""

    def maintenance(self, numbers: list[int]) -> None:
        for number in numbers:
            self.world.balancer.state[_untouched(self.world)[number]] = "maint"

    def back(self, number: int) -> None:
        self.world.balancer.state[_untouched(self.world)[number]] = "ready"


@pytest.mark.parametrize("case", scenarios(__file__))
def test_a_rollback_takes_all_back_that_it_can(case: Any, world: World) -> None:
    RoomMoves(world).play(case)


def _tuned(world: World) -> list[str]:
    return [host for batch in (0, 2) for host in world.plan.batches[batch].hosts]


def _untouched(world: World) -> list[str]:
    return [host for host in world.balancer.state if host not in _tuned(world)]


def _batches(world: World, marked: dict[str, Any]) -> list[list[str]]:
    return [list(world.at(batch)) for batch in range(marked["first_batch"], marked["end_batch"])]


def _now(world: World, health_ms: dict[str, float]) -> None:
    """The baseline was 1 ms everywhere; this is how long health checks take now."""
    now = time.time()
    opened = as_owner(world.context, world.rollout)
    opened.head.baseline = [now - 1000, now - 900]
    opened.save()
    for at, slow in ((now - 950, {}), (now, health_ms)):
        rows = [reading(h, at, health_p50_ms=slow.get(h, 1.0)) for h in world.balancer.state]
        world.context.samples.add("lab1", rows)


def test_the_sickest_are_taken_back_first(world: World) -> None:
    for name in _untouched(world)[:2]:
        world.balancer.state[name] = "maint"
    well, ill, worst, worse = _tuned(world)
    _now(world, {ill: 30.0, worst: 900.0, worse: 80.0})
    assert _batches(world, world.mark("rolling_back")) == [[worst, worse], [ill, well]]


def test_hosts_out_of_service_come_first_and_need_no_room(world: World) -> None:
    out, *serving = _tuned(world)
    world.balancer.up[out] = False
    for name in _untouched(world):
        world.balancer.state[name] = "maint"
    marked = world.mark("rolling_back")
    assert _batches(world, marked) == [[out], *([name] for name in serving)]
    # Three serve and four must: the PoP is below min_in_service already, and not because of us.
    world.balancer.up[out] = True
    world.balancer.state[out] = "maint"
    world.roll(marked["first_batch"])
    assert world.at(marked["first_batch"]) == {out: "done"}
    assert world.hosts.tuned == set(serving)


def test_as_many_go_first_as_there_is_room_for(world: World) -> None:
    """The PoP has lost hosts since the batch was planned."""
    tuned = _tuned(world)
    batch = world.mark("rolling_back")["first_batch"]
    names = list(world.at(batch))
    assert len(names) == 4
    for name in _untouched(world)[:3]:
        world.balancer.state[name] = "maint"
    for done in range(1, 5):
        assert world.step(drain_hosts, batch)["waiting"] == 0
        assert len([name for name in names if not world.balancer.servers()[name].is_serving]) == 1
        world.roll(batch)
        assert list(world.at(batch).values()) == ["done"] * done + ["planned"] * (4 - done)
        assert world.step(check_health, batch)["remaining"] == 4 - done
        assert world.batch(batch).finished is (done == 4)
    assert world.hosts.tuned == set(tuned) - set(names)


@pytest.mark.slow
@pytest.mark.usefixtures("clock")
def test_a_rollback_called_twice_at_once_fences_the_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every moment of one, somebody else begins another and brings it to its end."""
    # Between a look at the claim and what follows no second one fits that lasts a while.
    monkeypatch.setattr(lease, "_PERMIT_HOLDS", 0)
    moment = 0
    # Each effect has the moment before it and the one after.
    for moment in count(0, 2):
        world = changing(tmp_path / str(moment), batch_size=2)
        world.roll(0)
        world.roll(2, until=verify_hosts)
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


def test_a_rollback_by_hand_does_not_lose_to_a_resume_at_the_same_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody carries the rollout on just between the two halves of taking it back."""
    resumed: list[int] = []

    def and_then_a_resume(*given: Any, **more: Any) -> Head:
        taken = take_over(*given, **more)
        if not resumed:
            again = take_over_rollout(world.context, world.rollout, unfinished_only=True)
            resumed.append(again["epoch"])
        return taken

    monkeypatch.setattr(
        "edgetune.rollout.steps.take_over_for_rollback.take_over", and_then_a_resume
    )
    back = take_over_for_rollback(world.context, world.rollout, requested_by="ana")
    assert (back["entered"], world.head.state) == (True, "rolling_back")
    with pytest.raises(FencedError):
        set_rollout_state(world.context, world.rollout, resumed[0], "changing")
