# SPDX-License-Identifier: Apache-2.0
"""Rollbacks: of a sick PoP, of single hosts, called twice, without room."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from edgetune.documents.head import Head
from edgetune.errors import EdgetuneError, FencedError, InputError, RefusedError
from edgetune.rollout import lease
from edgetune.rollout.lease import as_owner
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.check_health import check_health
from edgetune.rollout.steps.claim_pop import claim_pop
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.restore_hosts import restore_hosts
from edgetune.rollout.steps.set_rollout_state import set_rollout_state
from edgetune.rollout.steps.take_over_for_rollback import take_over_for_rollback
from edgetune.rollout.steps.take_over_rollout import take_over, take_over_rollout
from edgetune.rollout.steps.verify_hosts import verify_hosts
from tests.support.builders import reading
from tests.support.world import World, changing

SOMAXCONN = "sysctl:net.core.somaxconn"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """The test group is changed: one host, then three."""
    made = changing(tmp_path)
    made.roll_all({"first_batch": 0, "end_batch": 4})
    return made


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


def test_without_room_a_rollback_waits_and_quarantines_nobody(world: World) -> None:
    for name in _untouched(world):
        world.balancer.state[name] = "maint"
    batch = world.mark("rolling_back")["first_batch"]
    (host,) = world.at(batch)
    log = list(world.balancer.log)
    for _ in range(2):
        result = world.step(drain_hosts, batch)
        assert result["waiting"] == 1
        assert "would leave 3 hosts in service, 4 must stay" in result["message"]
    assert (world.at(batch), world.head.quarantined) == ({host: "planned"}, {})
    assert world.balancer.log == log
    world.balancer.state[_untouched(world)[0]] = "ready"
    assert world.step(drain_hosts, batch)["waiting"] == 0
    world.roll(batch)
    assert world.at(batch) == {host: "done"}


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


@pytest.mark.parametrize("before", [None, {"runtime": "16", "persistent": "16"}])
def test_what_is_other_than_planned_because_of_other_tunings_is_no_failure(
    world: World, before: dict[str, str] | None
) -> None:
    """A later one holds the setting, or an earlier one that the plan saw has been retired."""
    for name in _tuned(world):
        world.hosts.values[name] = "16"
        world.hosts.way_back[name] = {SOMAXCONN: before}
    batch = world.mark("rolling_back")["first_batch"]
    world.roll(batch, until=verify_hosts)
    # Taken back by now: no journal says any more where it led.
    world.hosts.way_back.clear()
    world.step(restore_hosts, batch)
    world.roll(batch)
    assert set(world.at(batch).values()) == {"done"}
    assert world.head.quarantined == {}


def test_a_host_that_is_not_as_its_journal_led_back_to_is_quarantined(world: World) -> None:
    batch = world.mark("rolling_back")["first_batch"]
    world.roll(batch, until=restore_hosts)
    host, *others = world.at(batch)
    world.hosts.way_back[host] = {SOMAXCONN: {"runtime": "16", "persistent": None}}
    world.hosts.values[host] = "17"
    world.roll(batch)
    (why,) = world.head.quarantined.values()
    assert why.reason == (
        f"not as before: {SOMAXCONN} was 16 (stored: not set), is 17 (stored: 17)"
    )
    assert world.at(batch) == {host: "quarantined", **dict.fromkeys(others, "done")}


@pytest.mark.slow
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


def test_a_rolled_back_rollout_visits_what_it_quarantined_again(world: World) -> None:
    sick, *_ = _tuned(world)
    world.hosts.errors[sick, "restore"] = "Read-only file system"
    assert world.roll_back()["quarantined"] == {sick: "Read-only file system"}
    assert (world.balancer.state[sick], world.hosts.not_ready) == ("maint", {sick})
    world.hosts.errors.clear()
    asked = len(world.hosts.asked)
    assert world.take_over()["claimed"]
    assert world.roll_back()["quarantined"] == {}
    assert {name for name, verb, _ in world.hosts.asked[asked:] if verb == "restore"} == {sick}
    assert (world.balancer.state[sick], world.hosts.not_ready) == ("ready", set())
    assert world.hosts.tuned == set()
    assert not world.take_over()["claimed"]


def test_only_the_named_hosts_are_visited(world: World) -> None:
    one, other, *_ = _tuned(world)
    for name in (one, other):
        world.hosts.errors[name, "restore"] = "Read-only file system"
    world.roll_back()
    world.hosts.errors.clear()
    world.take_over()
    assert world.roll_back(hosts=[one])["quarantined"] == {other: "Read-only file system"}
    assert world.hosts.tuned == {other}
    assert (world.balancer.state[one], world.balancer.state[other]) == ("ready", "maint")


def test_a_host_that_needs_nothing_is_named(world: World) -> None:
    one, other, *_ = _tuned(world)
    world.hosts.errors[one, "restore"] = "Read-only file system"
    world.roll_back()
    world.take_over()
    with pytest.raises(InputError, match=f"hosts: {other} has nothing to be taken back"):
        world.mark("rolling_back", hosts=[other])


def test_single_hosts_are_visited_only_once_all_are_back(world: World) -> None:
    host, *_ = _tuned(world)
    log = list(world.balancer.log)
    says = f"rollout {world.rollout} is changing; single hosts are visited only once"
    with pytest.raises(RefusedError, match=says):
        world.mark("rolling_back", hosts=[host])
    assert (world.head.state, world.balancer.log) == ("changing", log)


def test_a_host_with_sessions_for_ever_is_quarantined_and_stays_drained(world: World) -> None:
    host, *others = _tuned(world)
    marked = world.mark("rolling_back")
    world.balancer.sessions[host] = 3
    world.step(drain_hosts, marked["first_batch"])
    world.age(marked["first_batch"])
    result = world.step(check_drained, marked["first_batch"])
    assert (result["waiting"], result["skipped"]) == (0, [])
    world.roll(marked["first_batch"])
    error = "still carries 3 sessions after its drain deadline"
    assert world.mark("rolled_back")["quarantined"] == {host: error}
    assert world.balancer.state[host] == "drain"
    assert world.hosts.tuned == {host}
    assert {world.balancer.state[name] for name in others} == {"ready"}


@pytest.mark.parametrize("by_hand", [True, False])
def test_taken_back_while_hosts_change_the_pop_stays_claimed_for_a_while(
    world: World, by_hand: bool
) -> None:
    if by_hand:
        world.take_over()
    world.roll_back()
    told = f"lab1 is claimed by rollout {world.rollout}, which has ended; an action of an owner"
    with pytest.raises(FencedError, match=told + r" .*: lab1 is free in (10m|9m5\ds)$"):
        claim_pop(world.context, plan=world.plan.digest)


def test_taken_back_from_its_soak_the_pop_is_free_at_once(world: World) -> None:
    world.mark("soaking")
    world.roll_back()
    assert claim_pop(world.context, plan=world.plan.digest)["rollout"]


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


def test_what_is_rolled_back_is_left_alone(world: World) -> None:
    world.mark("rolling_back")
    world.mark("rolled_back")
    epoch = world.head.epoch
    again = take_over_for_rollback(world.context, world.rollout)
    assert (again["entered"], again["message"]) == (
        False,
        f"rollout {world.rollout} is rolled_back already",
    )
    assert world.head.epoch == epoch
