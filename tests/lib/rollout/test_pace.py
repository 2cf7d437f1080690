# SPDX-License-Identifier: Apache-2.0
"""Samples keep their interval whatever a task costs; one that cannot be kept is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.clock import wall
from edgetune.documents.options import Options
from edgetune.documents.reading import encoded
from edgetune.durations import duration
from edgetune.errors import FencedError, InputError, RefusedError
from edgetune.files import load_yaml
from edgetune.metrics.table import SampleTable
from edgetune.rollout.automation import SAMPLED_EVERY
from edgetune.rollout.context import Context
from edgetune.rollout.heartbeat import Heartbeat
from edgetune.rollout.lease import Lease, as_owner
from edgetune.rollout.record import read_rollout
from edgetune.rollout.sampling import sample_pops
from edgetune.rollout.soak import Soak
from edgetune.rollout.steps.check_baseline import _too_short, check_baseline
from edgetune.rollout.steps.compare_groups import compare_groups
from edgetune.rollout.steps.sample_hosts import _is_due, _next_sample, sample_hosts
from edgetune.rollout.steps.sample_running import sample_running
from tests.support import ROOT
from tests.support.builders import as_samples, samples, table_of
from tests.support.soaking import Soaking
from tests.support.virtual_clock import VirtualClock
from tests.support.world import World


@pytest.fixture(autouse=True)
def one_sample_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgetune.rollout.steps.sample_hosts._A_WHILE", 0)


@pytest.fixture
def clock(clock: VirtualClock) -> VirtualClock:
    """It goes on only while somebody sleeps."""
    clock.look = 0.0
    return clock


def began(tmp_path: Path, ago: float, wait: bool = True, **planned: Any) -> World:
    """A world whose PoP was claimed some seconds ago."""
    options = {"interval": 2, "baseline": 20, "warmup": 5, "soak": 30}
    world = World(tmp_path, **{**options, **planned})
    opened = as_owner(world.context, world.rollout)
    last = opened.head.history[-1]
    opened.head.history[-1] = replace(last, at=last.at - ago)
    opened.head.wait = wait
    opened.save()
    return world


def test_an_interval_that_cannot_be_kept_is_told_before_the_baseline(tmp_path: Path) -> None:
    world = began(tmp_path, ago=5)
    told = world.mark("baseline")["message"]
    assert told.startswith("baseline: measuring the baseline; interval=2s cannot always ")
    assert "be kept: from one task to the next 5" in told


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
    world = began(tmp_path, 0, interval=10, baseline=60, warmup=5, soak=soak)
    world.mark("baseline")
    for _ in range(5):
        sample_hosts(world.context, "lab1")
        clock.wait(apart)
    now = clock.wall()
    opened = as_owner(world.context, world.rollout)
    opened.head.baseline = [now - 61, now]
    opened.save()
    why = f"soak={soak}s is too short: {told}" if told else ""
    assert _too_short(opened) == why
    if told:
        with pytest.raises(RefusedError, match=f"^{why}$"):
            check_baseline(world.context, world.rollout, world.epoch)


def test_a_soak_for_fewer_samples_than_a_look_needs_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="soak: 34s is below 35s: it is at least 3 x interval \\+ warmup"
    ):
        Options(interval=10, baseline=60, warmup=5, soak=34).checked()


def test_nothing_is_told_of_an_interval_that_is_kept(tmp_path: Path) -> None:
    world = began(tmp_path, ago=5, interval=10, baseline=60, soak=60)
    assert world.mark("baseline")["message"] == "baseline: measuring the baseline"


@pytest.mark.parametrize(
    ("soak", "tells"), [(184, ", too rarely for a look within soak=3m4s"), (185, "")]
)
def test_without_a_workflow_a_soak_is_sampled_as_the_rule_does(
    tmp_path: Path, soak: int, tells: str
) -> None:
    world = began(tmp_path, ago=0, wait=False, soak=soak)
    told = world.mark("baseline")["message"]
    assert "cannot" not in told
    assert told.endswith(f"the rule sample_running samples every {duration(SAMPLED_EVERY)}{tells}")
    trigger = load_yaml(ROOT / "rules/sample_running.yaml")["trigger"]
    assert trigger["parameters"] == {"unit": "seconds", "delta": SAMPLED_EVERY}


def test_both_things_are_told_of_an_interval(tmp_path: Path) -> None:
    world = began(tmp_path, ago=5, wait=False)
    told = world.mark("baseline")["message"]
    assert "interval=2s cannot always be kept" in told and "is that of the baseline alone" in told


def test_what_a_task_costs_is_not_added_to_the_interval(
    tmp_path: Path, clock: VirtualClock
) -> None:
    world = World(tmp_path, interval=10, baseline=600)
    world.mark("baseline")
    opened = as_owner(world.context, world.rollout)
    clock.set_to(opened.head.created)
    moments = []
    for lag in (2.5, 0.5, 4.0, 3.0, 9.0):
        clock.wait(lag)
        moments.append(clock.wall() - opened.head.created)
        clock.wait(_next_sample(opened, False))
    assert [int(moment // 10) for moment in moments] == [0, 1, 2, 3, 4]


def test_a_baseline_is_over_with_the_sample_that_ends_it(tmp_path: Path) -> None:
    world = World(tmp_path, interval=10, baseline=600)
    world.mark("baseline")
    given = {"rollout": world.rollout, "epoch": world.epoch}
    early = sample_hosts(world.context, **given)
    assert (early["due"], early["retry_after"] <= 10) == (False, True)
    opened = as_owner(world.context, world.rollout)
    opened.head.baseline[1] = wall() + 1.5
    assert _next_sample(opened, False) <= 2
    opened.head.baseline[1] = wall()
    opened.save()
    assert sample_hosts(world.context, **given)["due"]


def test_a_soak_is_looked_at_when_a_look_is_due(tmp_path: Path) -> None:
    world = Soaking(tmp_path)
    world.soak(test=1.0, began=100)
    opened = as_owner(world.context, world.rollout)
    soaking = Soak(opened)
    assert _is_due(opened) == bool(soaking.due(now=False))


def test_who_stays_with_a_soak_keeps_its_claim(tmp_path: Path, monkeypatch: Any) -> None:
    world = World(tmp_path)
    for state in ("baseline", "changing", "soaking"):
        world.mark(state)
    kept: list[str] = []
    monkeypatch.setattr(Lease, "renew", lambda lease: kept.append(lease.record.head.id))
    assert not sample_hosts(world.context, rollout=world.rollout)["due"]
    assert kept == [world.rollout]


def test_samples_that_follow_soon_are_taken_by_one_task(
    tmp_path: Path, clock: VirtualClock, monkeypatch: Any
) -> None:
    monkeypatch.setattr("edgetune.rollout.steps.sample_hosts._A_WHILE", 15)
    world = World(tmp_path, interval=5, baseline=600)
    world.mark("baseline")
    begun = read_rollout(world.context, world.rollout).head.created + 2
    clock.set_to(begun)
    told = sample_hosts(world.context, rollout=world.rollout, epoch=world.epoch)
    times = {*world.context.samples.window("lab1", begun, clock.wall()).time}
    # At once, and then on the grid: 3 s later, 8, 13, and no more in a while.
    assert sorted(round(at - begun, 3) for at in times) == [0, 3, 8, 13]
    assert (told["due"], told["retry_after"]) == (False, 5)


def test_a_task_that_samples_ends_with_its_claim(
    tmp_path: Path, clock: VirtualClock, monkeypatch: Any
) -> None:
    monkeypatch.setattr("edgetune.rollout.steps.sample_hosts._A_WHILE", 60)
    world = World(tmp_path, interval=1, baseline=600)
    world.mark("baseline")
    clock.then = lambda: world.context.claims.take("lab1", "another", 60)
    with pytest.raises(FencedError):
        sample_hosts(world.context, rollout=world.rollout, epoch=world.epoch)


def test_what_the_rule_samples_is_not_sampled_again(tmp_path: Path) -> None:
    world = World(tmp_path, interval=SAMPLED_EVERY, baseline=6000)
    world.mark("baseline")
    first = sample_hosts(world.context, rollout=world.rollout, epoch=world.epoch)
    assert (first["samples"], first["retry_after"] <= SAMPLED_EVERY) == (8, True)
    sample_running(world.context)
    later = sample_hosts(world.context, rollout=world.rollout, epoch=world.epoch)
    assert later["samples"] == 0
    assert later["message"] == "the rule sample_running sampled it in this interval already"
    assert later["retry_after"] == world.context.config.owner_timeout // 3
    opened = as_owner(world.context, world.rollout)
    opened.head.baseline[1] = wall() + 20
    opened.save()
    soon = sample_hosts(world.context, rollout=world.rollout, epoch=world.epoch)
    assert soon["retry_after"] <= 20


@pytest.mark.parametrize("ago", [None, SAMPLED_EVERY + 1, -3600])
def test_a_sample_of_ours_does_not_stand_for_one_of_the_rule(
    tmp_path: Path, ago: float | None
) -> None:
    world = World(tmp_path, interval=SAMPLED_EVERY, baseline=6000)
    world.mark("baseline")
    if ago is not None:
        world.context.heartbeats.beat("sample_running:lab1", Heartbeat(wall() - ago))
    given = {"rollout": world.rollout, "epoch": world.epoch}
    told = [sample_hosts(world.context, **given) for _ in range(2)]
    assert [(each["samples"], each["retry_after"] <= SAMPLED_EVERY) for each in told] == [
        (8, True)
    ] * 2


def test_a_task_tells_of_every_sample_that_it_took(
    tmp_path: Path, clock: VirtualClock, monkeypatch: Any
) -> None:
    monkeypatch.setattr("edgetune.rollout.steps.sample_hosts._A_WHILE", 15)
    world = World(tmp_path, interval=10, baseline=600)
    world.mark("baseline")
    clock.set_to(read_rollout(world.context, world.rollout).head.created)
    sampled, found = sample_pops, [["e002"], []]

    def without(context: Context, pops: Sequence[str]) -> Any:
        told = sampled(context, pops)
        for name in found.pop(0) if found else ():
            told.answered.discard(name)
            told.errors[name] = "no answer"
        return told

    monkeypatch.setattr("edgetune.rollout.steps.sample_hosts.sample_pops", without)
    told = sample_hosts(world.context, rollout=world.rollout, epoch=world.epoch)
    assert not found
    assert (told["samples"], told["missing"]) == (8, ["e002"])


class EachMinute:
    """Stored samples, of which a rule took those of the soak every 60 s."""

    def __init__(self, samples: Any, begin: float) -> None:
        self._samples, self._begin = samples, begin

    def window(self, pop: str, start: float, end: float) -> SampleTable:
        found = [encoded(sample) for sample in self._samples.window(pop, start, end).rows()]
        return table_of([row for row in found if self._keeps(row["time"] - self._begin)])

    def _keeps(self, at: float) -> bool:
        return at < 0 or round(at) % 60 == 10


def each_minute(folder: Path, wait: bool, ago: float) -> Soaking:
    """A rollout whose soak ended ``ago`` seconds ago, and was sampled every 60 s."""
    world = Soaking(folder, looks=1)
    for state in ("changing", "soaking"):
        world.mark(state)
    begin = world.now - ago - 600
    world.keep("soak", [begin, begin + 600])
    world.keep("wait", wait)
    rates = dict.fromkeys(world.hosts_of("control"), 3.0)
    rates.update(dict.fromkeys(world.hosts_of("test"), 0.0))
    world.context.samples.add("lab1", as_samples(samples(rates, begin, 700, "boot 1", seed=15)))
    world.context.samples = EachMinute(world.context.samples, begin)  # type: ignore[assignment]
    return world


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
    told = compare_groups(world.context, world.rollout)
    assert told["decision"] == decision, told["message"]
    assert ("the newest sample is 50s old" in told["message"]) is wait
