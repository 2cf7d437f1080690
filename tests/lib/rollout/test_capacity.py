# SPDX-License-Identifier: Apache-2.0
"""What tuned hosts carry beside untuned ones: how far pairs are taken, and that all goes back."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.base import clock as clocks
from edgetune.base.documents.capacity import capacity_key
from edgetune.base.errors import DrainError, EdgetuneError, FencedError, InputError, RefusedError
from edgetune.fleet.campaign.control import approve
from edgetune.report.capacity import capacity_plan_text
from edgetune.report.steps.report_rollout import report_rollout
from edgetune.report.steps.show_verdict import show_verdict
from edgetune.rollout.guard.stalled import stalled_rollout
from edgetune.rollout.guard.watched import Watched
from edgetune.rollout.hosts.measuring import LENT_FOR
from edgetune.rollout.ownership.owner import is_orphaned
from edgetune.rollout.record.archive import sweep_ended
from edgetune.rollout.record.heads import read_living_heads
from edgetune.rollout.record.rollout import read_rollout
from edgetune.rollout.steps.assess_orphan import assess_orphan
from edgetune.rollout.steps.begin_capacity import begin_capacity
from edgetune.rollout.steps.compare_groups import compare_groups
from edgetune.rollout.steps.find_left import find_left
from edgetune.rollout.steps.find_orphans import find_orphans
from edgetune.rollout.steps.pause_pop import pause_pop
from edgetune.rollout.steps.resume_all import resume_all
from edgetune.rollout.steps.resume_pop import resume_pop
from edgetune.rollout.steps.return_weights import return_weights
from edgetune.rollout.steps.shift_weights import shift_weights
from edgetune.rollout.steps.stop_all import stop_all
from edgetune.rollout.steps.take_over_rollout import take_over_rollout
from tests.support.carrying import STEPS, Carrying
from tests.support.virtual_clock import VirtualClock
from tests.support.world import Died, dies

BUILT = 2.0 / 1.25
"""The ratio of the knees of a Carrying."""


@pytest.fixture
def world(tmp_path: Path, clock: VirtualClock) -> Carrying:
    return Carrying(tmp_path)


def _pair(world: Carrying) -> tuple[str, str]:
    return world.measured.plan.pairs[0].hosts


def test_a_pair_climbs_in_lockstep_and_both_return_at_the_first_limit(world: Carrying) -> None:
    world.begin_it()
    told = world.measure_on()
    tuned, untuned = _pair(world)
    assert tuned in world.hosts.tuned and untuned not in world.hosts.tuned
    steps = [entry for entry in world.balancer.log if entry[1].isdigit()]
    assert {name for name, _ in steps} == {tuned, untuned}
    # Both have a weight before one of them has the next.
    assert all({own[1] for own in two} == {two[0][1]} for two in zip(*[iter(steps)] * 2))
    assert steps[0][1] == "17" and steps[-1][1] == "16"
    (pair,) = world.measured.pairs
    assert {*pair.crossed} == {untuned} and pair.crossed[untuned] == pytest.approx(1.25, rel=0.1)
    assert (told["ratio"]["bound"], told["next"], told["stopped"]) == ("at_least", "", "")
    assert pair.carried[tuned] >= pair.crossed[untuned] > pair.carried[untuned]
    assert not world.lent and not world.is_measuring
    assert f"capacity: {told['message']}" in [entry.reason for entry in world.head.history]
    assert "capacity: tuned hosts carry at least " in world.status(rollout=world.rollout)


def test_alone_the_second_host_goes_on_and_the_ratio_is_what_the_hosts_were_built_with(
    world: Carrying,
) -> None:
    world.begin_it(alone=True, pairs=3)
    told = world.measure_on()
    assert told["ratio"]["bound"] == "exactly" and told["ratio"]["ratio"] == pytest.approx(
        BUILT, rel=0.1
    )
    low, high = told["ratio"]["interval"]
    assert low <= told["ratio"]["ratio"] <= high
    assert len(world.measured.pairs) == 3 and not world.lent
    steps = [entry for entry in world.balancer.log if entry[1].isdigit()]
    tuned, untuned = _pair(world)
    back = steps.index((untuned, "16"))
    assert any(name == tuned and int(weight) > 30 for name, weight in steps[back:])


def test_the_interval_is_of_all_pairs(world: Carrying) -> None:
    """Of hosts whose knees differ it is wider, and holds what they were built with."""
    world.own_knees = {f"e00{n}": knee for n, knee in enumerate((1.2, 1.3, 1.25, 1.4))}
    world.own_knees = {n: k for n, k in world.own_knees.items() if n not in world.hosts.tuned}
    world.begin_it(alone=True, pairs=3)
    told = world.measure_on()
    low, high = told["ratio"]["interval"]
    assert high - low > 0.01 and low < BUILT < high


def test_without_a_limit_of_ones_own_it_is_that_of_the_untuned_host(world: Carrying) -> None:
    world.knees = {True: 1.6, False: 0.9}
    world.begin_it(alone=True, limit=None)
    told = world.measure_on()
    # 100 of 1,000 are dropped beyond a knee: 1.5 times what 0.1 above 0.9 gives is 0.15 above it.
    assert world.measured.pairs[0].crossed[_pair(world)[1]] == pytest.approx(0.9 / 0.985, abs=0.15)
    assert told["ratio"]["bound"] == "exactly" and told["ratio"]["ratio"] > 1.4


def test_a_limit_that_the_metric_has_is_that_of_the_measurement(world: Carrying) -> None:
    world.begin_it(metric="health_failed", limit=None)
    plan = world.measured.plan
    assert plan.limit == 0.5 and plan.definition and plan.definition.limit == 0.5
    told = capacity_plan_text(plan)
    assert "a host is at its limit where health_failed passes 0.5, or a guard" in told
    assert "is worse by half" in capacity_plan_text(replace(plan, limit=None))


def test_what_was_measured_is_found_after_the_rollout_has_ended(
    world: Carrying, tmp_path: Path
) -> None:
    """Its head keeps the ratio, and the document stays, also in the archive."""
    world.begin_it(alone=True)
    told = world.measure_on()["message"]
    config = replace(world.context.config, report_dir=str(tmp_path / "pages"))
    world.context.config = config
    world.epoch = take_over_rollout(world.context, world.rollout, owner="ben-1")["epoch"]
    world.roll_all(world.mark("rolling_back"))
    world.mark("rolled_back")
    page = Path(report_rollout(world.context, world.rollout)["path"])
    assert "listen_drops, measured: +6" in (page.parent / "index.html").read_text()
    clocks.sleep(2 * 86400)
    assert sweep_ended(world.context, read_living_heads(world.context)[0]) == (1, [])
    shown = world.status(rollout=world.rollout)
    assert "effect: load to the limit of listen_drops, measured: +6" in shown
    assert told in show_verdict(world.context, world.rollout)["text"]
    page = Path(report_rollout(world.context, world.rollout)["path"])
    tuned, untuned = _pair(world)
    assert all(each in page.read_text() for each in (told, f"{tuned} reached a limit at"))
    world.context.store.put(capacity_key(world.rollout), "{")
    shown = show_verdict(world.context, world.rollout)["text"]
    assert f"{capacity_key(world.rollout)} is damaged" in shown
    world.context.store.put(capacity_key(world.rollout), "{")
    assert capacity_key(world.rollout) in _aside(report_rollout(world.context, world.rollout))


def _aside(told: Any) -> str:
    return Path(told["path"]).read_text().partition("<aside>")[2].partition("</aside>")[0]


def test_a_rollout_that_goes_on_keeps_what_was_measured_so_far(world: Carrying) -> None:
    world.begin_it(pairs=2, alone=True)
    world.measure_on(until="return_weights")
    world.measure_on("return_weights", until="shift_weights")
    assert world.measured.at == 1
    world.epoch = take_over_rollout(world.context, world.rollout, owner="ben-1")["epoch"]
    world.mark("held")
    own = world.measured
    assert own.ended and own.stopped == "its rollout went on without it"
    assert own.ratio and own.ratio.ratio == pytest.approx(BUILT, rel=0.1)
    assert world.head.capacity == own.ratio
    world.begin_it()
    assert world.head.capacity is None
    text = show_verdict(world.context, world.rollout)["text"]
    assert "measured by sending hosts more: that is not over" in text


def test_a_measurement_that_cannot_be_read_keeps_no_rollout_from_going_on(world: Carrying) -> None:
    world.begin_it()
    world.climb(2)
    world.epoch = take_over_rollout(world.context, world.rollout, owner="ben-1")["epoch"]
    world.context.store.put(capacity_key(world.rollout), "{")
    world.mark("held")
    assert not world.lent and not world.is_measuring and world.head.capacity is None


def test_a_share_that_reaches_no_limit_tells_no_ratio(world: Carrying) -> None:
    world.knees = {True: 9.0, False: 9.0}
    world.begin_it()
    told = world.measure_on()
    assert told["ratio"] == {}
    assert world.measured.pairs[0].stopped.endswith("reached no limit with 27.8% of the requests")
    # One of them alone, be it for a moment, gets what is permitted with the same weight.
    assert 0.34 < world.measured.plan.pairs[0].most <= 0.35


def _others_drain(world: Carrying) -> None:
    others = [name for name in world.balancer.state if name not in _pair(world)]
    world.balancer.state.update(dict.fromkeys(others[:3], "drain"))


def _surges(world: Carrying) -> None:
    world.set_head(usual_load=8000.0)
    world.surge = 3.0
    clocks.sleep(10)
    for name in world.hosts.boot:
        world.load(name)


STOPS: dict[str, tuple[Callable[[Carrying], object], str]] = {
    "pause": (
        lambda world: pause_pop(world.context, "lab1", requested_by="ben"),
        "lab1 is paused",
    ),
    "freeze": (
        lambda world: world.set_head(freezes=[{"name": "sale", "start": 0, "end": 2**32}]),
        "frozen by sale",
    ),
    "surge": (_surges, "times its usual load"),
    "floor": (_others_drain, "hosts of lab1 would serve"),
    "one that is drained": (
        lambda world: world.balancer.state.update({_pair(world)[0]: "drain"}),
        "does not serve",
    ),
    "one that its check has down": (
        lambda world: world.balancer.up.update({_pair(world)[1]: False}),
        "does not serve",
    ),
    "one that the load balancer lost": (
        lambda world: world.balancer.state.pop(_pair(world)[1]),
        "does not serve",
    ),
}


@pytest.mark.parametrize("name", STOPS)
@pytest.mark.parametrize("before", ["read_capacity", "shift_weights"])
def test_what_keeps_hosts_from_more_ends_it_and_all_return(
    world: Carrying, name: str, before: str
) -> None:
    world.begin_it(pairs=2)
    told = world.climb(2)
    happens, says = STOPS[name]
    if before == "shift_weights":
        told = world.measure_on("read_capacity", until="shift_weights")
    assert len(world.lent) == 2
    happens(world)
    told = world.measure_on(before)
    assert says in told["stopped"] and says in told["message"]
    gone = {*world.balancer.weights} - {*world.balancer.state}
    assert not {*world.lent} - gone and not world.is_measuring
    # A surge may show by the limit of a pair first.
    assert name == "surge" or not world.measured.pairs[1].rungs


def test_no_host_gets_more_than_was_permitted_once_fewer_others_serve(world: Carrying) -> None:
    world.knees = {True: 9.0, False: 9.0}
    world.begin_it(rungs=4, most=0.28)
    world.climb(4)
    assert world.balancer.weights[_pair(world)[0]] == 43
    others = [name for name in world.balancer.state if name not in _pair(world)]
    # Beside six of weight 16 that is 23.6 % each, and beside four of them 28.7 %.
    world.balancer.state.update(dict.fromkeys(others[:2], "drain"))
    told = world.measure_on("read_capacity")
    assert "would get 28.7% of the requests" in told["stopped"] and not world.lent


def test_a_weight_that_changed_since_the_plan_ends_it_before_anything_is_lent(
    world: Carrying,
) -> None:
    digest = world.plan_it()
    world.epoch = begin_capacity(world.context, digest)["epoch"]
    world.balancer.weights[_pair(world)[1]] = 20
    told = world.measure_on()
    assert "has the weight 20 by now, and 16 in the plan" in told["stopped"]
    assert world.lent == {_pair(world)[1]: 20}


@pytest.mark.parametrize(
    ("host", "happens", "says"),
    [
        (0, {"health": "answers 503"}, "fails 100% of its health checks"),
        (1, {"health": "answers 503"}, "fails 100% of its health checks"),
        (0, {"unreachable": ""}, "does not answer"),
        (1, {"unreachable": ""}, "does not answer"),
    ],
)
def test_a_host_that_is_ill_or_silent_is_not_waited_for_and_ends_its_pair_alone(
    world: Carrying, host: int, happens: dict[str, str], says: str
) -> None:
    world.begin_it(pairs=2, alone=True, hold="1m")
    world.climb(2)
    name, began = _pair(world)[host], clocks.wall()
    if "health" in happens:
        world.hosts.health[name] = happens["health"]
    else:
        world.hosts.unreachable.add(name)
    told = world.measure_on("read_capacity", until="shift_weights")
    assert clocks.wall() - began < 15 and not world.lent
    assert says in world.measured.pairs[0].stopped
    world.hosts.health.clear()
    world.hosts.unreachable.clear()
    told = world.measure_on()
    assert told["ratio"]["ratio"] == pytest.approx(BUILT, rel=0.1) and told["stopped"] == ""
    assert "by 1 of 2 pairs" in told["message"]


def test_what_is_not_measured_is_beyond_its_limit(world: Carrying) -> None:
    world.begin_it()
    world.climb(2)
    world.hosts.gauges_left_out = {"health_failed"}
    real = world.hosts._sample

    def without(name: str, request: dict[str, Any]) -> dict[str, Any]:
        told = real(name, request)
        return {**told, "gauges": {"health_p50_ms": 1.0}}

    clocks.sleep(30)
    world.hosts._sample = without  # type: ignore[method-assign]
    # The samples of before the gauge went are of this rung; the next one has none.
    world.measure_on("read_capacity", until="return_weights")
    stopped = world.measured.pairs[0].stopped
    assert "health_failed is not measured" in stopped
    told = world.measure_on("return_weights")
    assert told["ratio"] == {} and not world.lent


def test_a_guard_of_the_tuning_is_a_limit_too(world: Carrying) -> None:
    world.begin_it()
    world.climb(2)
    real = world.hosts._sample

    def failing(name: str, request: dict[str, Any]) -> dict[str, Any]:
        told = real(name, request)
        failed = 0.2 if name == _pair(world)[0] else 0.0
        return {**told, "gauges": {"health_failed": failed, "health_p50_ms": 1.0}}

    world.hosts._sample = failing  # type: ignore[method-assign]
    told = world.measure_on("read_capacity")
    (pair,) = world.measured.pairs
    assert "health_failed is 0.1" in pair.stopped and not world.lent
    assert told["ratio"]["bound"] == "at_most"


def test_a_weight_that_a_person_has_set_meanwhile_is_left_and_told(world: Carrying) -> None:
    world.begin_it()
    world.climb(2)
    tuned, untuned = _pair(world)
    world.balancer.weights[tuned] = 7
    told = world.measure_on("read_capacity")
    assert world.lent == {tuned: 7} and not world.is_measuring
    assert f"{tuned}: its weight is 7" in told["stopped"]
    assert f"somebody else has set the weight of {tuned} to 7: it is left so" in told["message"]


def test_a_load_balancer_that_refuses_or_is_away_ends_it_and_is_asked_again(
    world: Carrying,
) -> None:
    world.begin_it()
    world.climb(2)
    world.balancer.gone = "lb1"
    with pytest.raises(EdgetuneError, match="lb1: does not answer"):
        world.measure_on("read_capacity")
    assert world.is_measuring and len(world.lent) == 2
    world.balancer.gone = ""
    told = world.measure_on("return_weights")
    assert "lb1: does not answer" in told["stopped"] and not world.lent


def test_a_stop_leaves_weights_as_they_are_until_it_is_lifted(world: Carrying) -> None:
    world.begin_it()
    world.climb(2)
    stop_all(world.context, reason="storm", requested_by="ben")
    clocks.sleep(30)
    for step in STEPS.values():
        with pytest.raises(RefusedError, match="everything is stopped"):
            step(world.context, world.rollout, world.epoch)
    lent = world.lent
    assert len(lent) == 2
    status = world.status(rollout="lab1")
    assert all(name in status for name in lent) and "weigh" in status
    resume_all(world.context, requested_by="ben")
    world.measure_on("return_weights")
    assert not world.lent


def test_who_lost_the_claim_changes_nothing_more(world: Carrying) -> None:
    world.begin_it()
    world.climb(2)
    taken = take_over_rollout(world.context, world.rollout, owner="other")
    lent = world.lent
    for step in STEPS.values():
        with pytest.raises(FencedError):
            step(world.context, world.rollout, world.epoch)
    assert world.lent == lent
    assess_orphan(world.context, world.rollout, taken["epoch"])
    assert not world.lent and not world.is_measuring


def test_who_is_overtaken_while_weights_are_set_takes_them_back(world: Carrying) -> None:
    """The new owner has returned them before, and sees nothing of what comes late."""
    world.begin_it()
    world.climb(1)
    world.measure_on("read_capacity", until="shift_weights")

    def overtaken(moment: str) -> None:
        if " weighs " in moment:
            world.moments.at = lambda what: None
            taken = take_over_rollout(world.context, world.rollout, owner="other")
            assess_orphan(world.context, world.rollout, taken["epoch"])

    world.moments.at = overtaken
    with pytest.raises(FencedError):
        shift_weights(world.context, world.rollout, world.epoch)
    assert not world.lent and not world.is_measuring


def test_steps_that_are_taken_twice_change_nothing_the_second_time(world: Carrying) -> None:
    world.begin_it()
    world.climb(2)
    weights, rungs = dict(world.balancer.weights), len(world.measured.pairs[0].rungs)
    shift_weights(world.context, world.rollout, world.epoch)
    assert world.balancer.weights == weights
    assert len(world.measured.pairs[0].rungs) == rungs
    assert world.measure_on("return_weights")["next"] == ""
    with pytest.raises(RefusedError, match="no capacity is measured"):
        return_weights(world.context, world.rollout, world.epoch)


def _recover(world: Carrying, clock: VirtualClock) -> None:
    """What the sweep does once nobody goes on any more."""
    head = world.head
    assert not is_orphaned(world.context, head)
    clock.wait(LENT_FOR + 1)
    if head.measuring is None:
        return
    assert is_orphaned(world.context, world.head)
    taken = take_over_rollout(
        world.context, world.rollout, owner="sweep", unfinished_only=True, orphaned=True
    )
    assert taken["claimed"]
    told = assess_orphan(world.context, world.rollout, taken["epoch"], requested_by="sweep")
    assert told["decision"] == "none"


@pytest.mark.long
@pytest.mark.slow
def test_weights_go_back_wherever_the_controller_dies(tmp_path: Path, clock: VirtualClock) -> None:
    """Nobody but the sweep comes then; what is measured next finds the usual weights."""
    for moment in count(1):
        world = Carrying(tmp_path / str(moment))
        digest = world.plan_it(alone=True, rungs=2, hold="2s")
        world.moments.seen.clear()

        def measure(own: Carrying, digest: str = digest) -> None:
            own.epoch = begin_capacity(own.context, digest, owner="m-1")["epoch"]
            own.measure_on()

        # After an effect or before the next one is the same to the world.
        if not dies(world, 2 * moment - 1, measure):
            assert moment > 20
            break
        died = world.moments.seen[-1]
        _recover(world, clock)
        assert not world.lent and not world.is_measuring, died
        assert world.head.state == "soaking", died
        clock.wait(world.context.config.owner_timeout)
        world.begin_it()


def test_what_a_dead_controller_left_is_named_and_the_sweep_returns_it(
    world: Carrying, clock: VirtualClock
) -> None:
    """It died between the weights of a pair: the record has both."""
    world.begin_it()
    world.climb(1)
    world.measure_on("read_capacity", until="shift_weights")

    def die(moment: str) -> None:
        if moment.startswith("after ") and " weighs " in moment:
            world.moments.at = lambda what: None
            raise Died(moment)

    world.moments.at = die
    with pytest.raises(Died):
        shift_weights(world.context, world.rollout, world.epoch)
    assert len({*world.lent.values()}) == 2
    measured = "its capacity is measured"
    assert measured in " ".join(world.status().split())
    clock.wait(LENT_FOR + 1)
    assert measured not in " ".join(world.status().split())
    assert "WEIGHTS NOT RETURNED: " in world.status()
    assert f"recover_rollout rollout={world.rollout}" in world.status()
    assert find_orphans(world.context)["ids"] == [world.rollout]
    taken = take_over_rollout(world.context, world.rollout, orphaned=True)
    assess_orphan(world.context, world.rollout, taken["epoch"])
    assert not world.lent and find_orphans(world.context)["ids"] == []
    assert "WEIGHTS" not in world.status()


def test_a_workflow_that_ended_is_known_by_its_execution(world: Carrying) -> None:
    world.begin_it()
    world.climb(2)
    assert find_left(world.context, "m-1")["rollout"] == world.rollout
    taken = take_over_rollout(world.context, world.rollout, owner="r-1", execution="m-1")
    assert taken["claimed"]
    told = assess_orphan(world.context, world.rollout, taken["epoch"], ended="canceled")
    assert told["decision"] == "none" and "weights returned: " in told["message"]
    assert not world.lent
    assert find_left(world.context, "m-1")["rollout"] == ""


def test_no_look_is_taken_meanwhile_and_the_next_one_returns_what_was_left(
    world: Carrying, clock: VirtualClock
) -> None:
    world.begin_it()
    world.climb(2)
    told = compare_groups(world.context, world.rollout, now=True)
    assert told["decision"] == "wait" and "is measured" in told["message"]
    assert len(world.lent) == 2
    clock.wait(LENT_FOR + 1)
    compare_groups(world.context, world.rollout)
    assert not world.lent and not world.is_measuring


def test_a_look_that_waits_for_a_long_measurement_is_not_overdue(
    world: Carrying, clock: VirtualClock
) -> None:
    world.begin_it()
    world.climb(1)
    world.set_head(soak=[clocks.wall() - 9000, clocks.wall() + 9000])
    assert "OVERDUE" not in world.status()
    watched = Watched(world.context, world.head, clocks.wall(), {}, {}, "")
    assert stalled_rollout(watched) is None
    clock.wait(LENT_FOR + 1)
    watched = Watched(world.context, world.head, clocks.wall(), {}, {}, "")
    assert "the rule recover_orphans picks it up" in str(stalled_rollout(watched))


@pytest.mark.parametrize("state", ["promoting", "rolling_back", "held"])
def test_whoever_moves_the_rollout_on_returns_the_weights_first(
    world: Carrying, state: str
) -> None:
    world.begin_it()
    world.climb(2)
    taken = take_over_rollout(world.context, world.rollout, owner="ben-1", requested_by="ben")
    world.epoch = taken["epoch"]
    world.mark(state)
    assert not world.lent and not world.is_measuring


def test_a_rollback_is_not_held_up_by_a_load_balancer_that_is_away(world: Carrying) -> None:
    """Its drains return what it left: no server is put back with a weight that was lent."""
    world.begin_it()
    world.climb(2)
    world.epoch = take_over_rollout(world.context, world.rollout, owner="ben-1")["epoch"]
    servers, left = world.balancer.set_weight, world.lent

    def away(server: str, weight: int) -> None:
        raise DrainError("lb1: denied")

    world.balancer.set_weight = away  # type: ignore[method-assign]
    marked = world.mark("rolling_back")
    assert world.lent == left and world.is_measuring
    world.balancer.set_weight = servers  # type: ignore[method-assign]
    world.step("begin_drain", marked["first_batch"])
    assert not world.lent and not world.is_measuring
    world.roll_all(marked)
    world.mark("rolled_back")
    assert not world.lent and not world.is_measuring


@pytest.mark.parametrize(
    ("asked", "happens", "says"),
    [
        ({"most": 0.12}, {}, "gets? 12.5% of the requests each"),
        ({}, {"wait": True}, "is watched by the workflow"),
        ({}, {"ring": "c/early"}, "is watched by its ring c/early"),
        ({}, {"soak": [2e9, 3e9]}, "is in its warm-up"),
        ({}, {"state": "changing"}, "is changing"),
    ],
)
def test_a_plan_is_refused_with_the_reason(
    world: Carrying, asked: dict[str, Any], happens: dict[str, Any], says: str
) -> None:
    if happens:
        world.set_head(**happens)
    with pytest.raises(RefusedError, match=says):
        world.plan_it(**asked)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"most": 0.5}, "most"),
        ({"most": 0.0}, "most"),
        ({"pairs": 0}, "pairs"),
        ({"rungs": 51}, "rungs"),
        ({"hold": "1s"}, "hold"),
        ({"hold": "x"}, "hold"),
        ({"metric": "nothing"}, "metric"),
    ],
)
def test_wrong_parameters_are_named(world: Carrying, asked: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=field):
        world.plan_it(**asked)


def test_a_load_balancer_without_weights_is_refused(world: Carrying) -> None:
    world.balancer.weights["e004"] = None
    with pytest.raises(RefusedError, match="tells no weight of e004: only one that has weights"):
        world.plan_it()


def test_a_pop_that_cannot_do_without_a_pair_is_refused(world: Carrying) -> None:
    world.balancer.state.update(dict.fromkeys(("e003", "e004", "e005"), "drain"))
    with pytest.raises(RefusedError, match=r"3 hosts of lab1 would serve, \d must"):
        world.plan_it()


def test_hosts_of_different_weights_are_no_pair(world: Carrying) -> None:
    for name in world.hosts.tuned:
        world.balancer.weights[name] = 20
    with pytest.raises(RefusedError, match=r"has the weight 20, and e00\d 16"):
        world.plan_it()


def test_where_plans_want_an_approval_so_does_this_one_each_time(world: Carrying) -> None:
    world.context.config = replace(world.context.config, plan_approval=True)
    digest = world.plan_it()
    with pytest.raises(RefusedError, match=f"plan {digest} waits for an approval"):
        begin_capacity(world.context, digest, requested_by="ana")
    told = approve(world.context, digest, requested_by="ben")
    assert told["of"] == f"plan {digest}, capacity with and without accept_queue on lab1"
    with pytest.raises(RefusedError, match="is approved by somebody else than who asks"):
        begin_capacity(world.context, digest, requested_by="ben")
    world.epoch = begin_capacity(world.context, digest, requested_by="ana")["epoch"]
    return_weights(world.context, world.rollout, world.epoch, stopped="asked for")
    with pytest.raises(RefusedError, match="was for one rollout"):
        begin_capacity(world.context, digest, requested_by="ana")


def test_only_one_is_measured_at_a_time_and_not_while_stopped_paused_or_frozen(
    world: Carrying,
) -> None:
    digest = world.plan_it()
    pause_pop(world.context, "lab1", requested_by="ben")
    with pytest.raises(RefusedError, match="is paused"):
        world.begin_it()
    resume_pop(world.context, "lab1", requested_by="ben")
    world.begin_it()
    with pytest.raises(RefusedError, match="measured already"):
        world.plan_it()
    with pytest.raises(RefusedError, match="measured already"):
        begin_capacity(world.context, digest)
    assert read_rollout(world.context, world.rollout).head.measuring is not None
