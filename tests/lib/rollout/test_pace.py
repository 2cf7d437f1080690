# SPDX-License-Identifier: Apache-2.0
"""Samples keep their interval whatever a task costs; one that cannot be kept is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.clock import wall
from edgetune.base.documents.options import LEAST_SAMPLES, Options
from edgetune.base.documents.reading import encoded
from edgetune.base.documents.table import SampleTable
from edgetune.base.errors import FencedError, InputError, RefusedError
from edgetune.base.files import load_yaml
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import looked_at, sample_pops
from edgetune.rollout.evidence.soak import Soak
from edgetune.rollout.ownership.automation import SAMPLED_EVERY
from edgetune.rollout.ownership.lease import Rollout, as_owner
from edgetune.rollout.steps.check_baseline import _too_short
from edgetune.rollout.steps.sample_hosts import _is_due, _next_sample
from edgetune.rollout.store.heartbeat import Heartbeat
from tests.support import ROOT
from tests.support.builders import as_samples, samples, table_of
from tests.support.soaking import Soaking
from tests.support.virtual_clock import VirtualClock
from tests.support.world import World

A_WHILE = "edgetune.rollout.steps.sample_hosts._A_WHILE"

LEAST = LEAST_SAMPLES * SAMPLED_EVERY


@pytest.fixture(autouse=True)
def one_sample_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(A_WHILE, 0)


@pytest.fixture
def clock(clock: VirtualClock) -> VirtualClock:
    """It goes on only while somebody sleeps."""
    clock.look = 0.0
    return clock


def measuring(folder: Path, interval: float = 10, baseline: float = 600) -> World:
    """A world whose baseline has just begun."""
    world = World(folder, interval=interval, baseline=baseline)
    world.mark("baseline")
    return world


def sampled(world: World) -> dict[str, Any]:
    """One task of the workflow."""
    return world.run("sample_hosts", epoch=world.epoch)


def ends_baseline(world: World, seconds: float) -> Any:
    """So many seconds from now."""
    world.set_head(baseline=[world.head.baseline[0], wall() + seconds])
    return as_owner(world.context, world.rollout)


@pytest.mark.parametrize(
    ("apart", "soak", "told"),
    [
        (12, 40, "samples came 12s apart, and a look needs 3; begin again with soak=41s"),
        (12, 41, ""),
        # Hosts do not answer to the millisecond.
        (10.5, 35, ""),
    ],
)
def test_a_soak_too_short_for_one_look_is_refused_before_the_first_change(
    tmp_path: Path, clock: VirtualClock, apart: float, soak: int, told: str
) -> None:
    world = World(tmp_path, interval=10, baseline=60, warmup=5, soak=soak)
    world.mark("baseline")
    for _ in range(5):
        world.run("sample_hosts", "lab1")
        clock.wait(apart)
    now = wall()
    world.set_head(baseline=[now - 61, now])
    why = f"soak={soak}s is too short: {told}" if told else ""
    assert _too_short(as_owner(world.context, world.rollout)) == why
    if told:
        with pytest.raises(RefusedError, match=f"^{why}$"):
            world.run("check_baseline")


def test_the_rule_samples_as_often_as_is_said() -> None:
    trigger = load_yaml(ROOT / "rules/sample_running.yaml")["trigger"]
    assert trigger["parameters"] == {"unit": "seconds", "delta": SAMPLED_EVERY}


def test_a_soak_for_fewer_samples_than_a_look_needs_is_no_plan() -> None:
    says = "soak: 34s is below 35s: it is at least 3 x interval \\+ warmup"
    with pytest.raises(InputError, match=says):
        Options(interval=10, baseline=60, warmup=5, soak=34).checked()


def test_what_a_task_costs_is_not_added_to_the_interval(
    tmp_path: Path, clock: VirtualClock
) -> None:
    world = measuring(tmp_path)
    opened = as_owner(world.context, world.rollout)
    clock.set_to(opened.head.created)
    moments = []
    for lag in (2.5, 0.5, 4.0, 3.0, 9.0):
        clock.wait(lag)
        moments.append(wall() - opened.head.created)
        clock.wait(_next_sample(opened, False))
    assert [int(moment // 10) for moment in moments] == [0, 1, 2, 3, 4]


def test_a_baseline_is_over_with_the_sample_that_ends_it(tmp_path: Path) -> None:
    world = measuring(tmp_path)
    early = sampled(world)
    assert (early["due"], early["retry_after"] <= 10) == (False, True)
    assert _next_sample(ends_baseline(world, 1.5), False) <= 2
    ends_baseline(world, 0)
    assert sampled(world)["due"]


def test_a_soak_is_looked_at_when_a_look_is_due_and_who_stays_with_it_keeps_its_claim(
    tmp_path: Path, monkeypatch: Any
) -> None:
    world = Soaking(tmp_path)
    world.soak(test=1.0, began=100)
    opened = as_owner(world.context, world.rollout)
    assert _is_due(opened) == bool(Soak(opened).due(now=False))
    kept: list[str] = []
    monkeypatch.setattr(Rollout, "renew", lambda own: kept.append(own.head.id))
    assert not world.run("sample_hosts")["due"]
    assert kept == [world.rollout]


def test_samples_that_follow_soon_are_taken_by_one_task(
    tmp_path: Path, clock: VirtualClock, monkeypatch: Any
) -> None:
    monkeypatch.setattr(A_WHILE, 15)
    world = measuring(tmp_path, interval=5)
    begun = world.head.created + 2
    clock.set_to(begun)
    told = sampled(world)
    times = {*world.context.samples.window("lab1", begun, wall()).time}
    # At once, and then on the grid: 3 s later, 8, 13, and no more in a while.
    assert sorted(round(at - begun, 3) for at in times) == [0, 3, 8, 13]
    assert (told["due"], told["retry_after"]) == (False, 5)


def test_a_task_that_samples_ends_with_its_claim(
    tmp_path: Path, clock: VirtualClock, monkeypatch: Any
) -> None:
    monkeypatch.setattr(A_WHILE, 60)
    world = measuring(tmp_path, interval=1)
    clock.then = lambda: world.context.claims.take("lab1", "another", 60)
    with pytest.raises(FencedError):
        sampled(world)


def test_what_the_rule_samples_is_not_sampled_again(tmp_path: Path) -> None:
    world = measuring(tmp_path, SAMPLED_EVERY, 6000)
    first = sampled(world)
    assert (first["samples"], first["retry_after"] <= SAMPLED_EVERY) == (8, True)
    world.run("sample_running")
    later = sampled(world)
    assert later["samples"] == 0
    assert later["message"] == "the rule sample_running sampled it in this interval already"
    assert later["retry_after"] == world.context.config.owner_timeout // 3
    ends_baseline(world, 20)
    assert sampled(world)["retry_after"] <= 20


@pytest.mark.parametrize("ago", [None, SAMPLED_EVERY + 1, -3600])
def test_a_sample_of_ours_does_not_stand_for_one_of_the_rule(
    tmp_path: Path, ago: float | None
) -> None:
    world = measuring(tmp_path, SAMPLED_EVERY, 6000)
    if ago is not None:
        world.context.heartbeats.beat("sample_running:lab1", Heartbeat(wall() - ago))
    told = [sampled(world) for _ in range(2)]
    assert [each["samples"] for each in told] == [8, 8]
    assert max(each["retry_after"] for each in told) <= SAMPLED_EVERY


def test_a_task_tells_of_every_sample_that_it_took(
    tmp_path: Path, clock: VirtualClock, monkeypatch: Any
) -> None:
    monkeypatch.setattr(A_WHILE, 15)
    world = measuring(tmp_path)
    clock.set_to(world.head.created)
    found: list[list[str]] = [["e002"], []]

    def without(context: Context, pops: Sequence[str]) -> Any:
        told = sample_pops(context, pops)
        for name in found.pop(0) if found else ():
            told.answered.discard(name)
            told.errors[name] = "no answer"
        return told

    monkeypatch.setattr("edgetune.rollout.steps.sample_hosts.sample_pops", without)
    told = sampled(world)
    assert not found
    assert (told["samples"], told["missing"]) == (8, ["e002"])


class EachMinute:
    """Stored samples, of which a rule took those of the soak every 60 s."""

    def __init__(self, samples: Any, begin: float, phase: int = 10) -> None:
        self._samples, self._begin, self._phase = samples, begin, phase

    def window(self, pop: str, start: float, end: float) -> SampleTable:
        found = [encoded(sample) for sample in self._samples.window(pop, start, end).rows()]
        return table_of([row for row in found if self._keeps(row["time"] - self._begin)])

    def _keeps(self, at: float) -> bool:
        return at < 0 or round(at) % 60 == self._phase


def each_minute(
    folder: Path, wait: bool, ago: float, lasts: float = 600, phase: int = 10, looks: int = 1
) -> Soaking:
    """A rollout whose soak ended ``ago`` seconds ago, and was sampled every 60 s."""
    world = Soaking(folder, looks=looks, soak=lasts + 10)
    world.change()
    begin = world.now - ago - lasts
    world.keep("soak", [begin, begin + lasts])
    world.keep("wait", wait)
    rates = dict.fromkeys(world.hosts_of("control"), 3.0)
    rates.update(dict.fromkeys(world.hosts_of("test"), 0.0))
    world.context.samples.add("lab1", as_samples(samples(rates, begin, 700, "boot 1", seed=15)))
    world.context.samples = EachMinute(world.context.samples, begin, phase)
    return world


# The least that a plan permits, what is left of it where a sample comes late, and three looks.
@pytest.mark.parametrize("lasts", [LEAST, LEAST - 15, 3 * LEAST])
@pytest.mark.parametrize("phase", range(0, 60, 10))
def test_a_soak_that_a_plan_permits_is_judged_whenever_the_rule_samples(
    tmp_path: Path, phase: int, lasts: int
) -> None:
    asked = Options(interval=10, warmup=10, soak=max(lasts, LEAST) + 10)
    looks = looked_at(asked, SAMPLED_EVERY).looks
    world = each_minute(tmp_path, False, 70, lasts, phase, looks)
    told = world.run("compare_groups")
    assert told["decision"] == "promote", told["message"]
    assert len(world.looked()) == looks


@pytest.mark.parametrize(
    ("wait", "ago", "knows"), [(False, 30, False), (False, 65, True), (True, 30, True)]
)
def test_what_a_look_will_find_is_known_once_the_sample_after_it_may_have_come(
    tmp_path: Path, wait: bool, ago: float, knows: bool
) -> None:
    """The guard sees harm before the look; with a sample fewer it could see something else."""
    world = each_minute(tmp_path, wait, ago)
    opened = as_owner(world.context, world.rollout)
    assert (Soak(opened).foreseen() is not None) is knows


@pytest.mark.parametrize(
    ("wait", "decision"),
    [(False, "promote"), (True, "hold")],
    ids=["sampled by the rule", "sampled by its workflow"],
)
def test_a_soak_that_the_rule_samples_is_judged_at_the_pace_of_the_rule(
    tmp_path: Path, wait: bool, decision: str
) -> None:
    """Its newest sample is 50 s old at the end, which is late for a plan of one each 10 s alone."""
    world = each_minute(tmp_path, wait, ago=100)
    told = world.run("compare_groups")
    assert told["decision"] == decision, told["message"]
    assert ("the newest sample is 50s old" in told["message"]) is wait
