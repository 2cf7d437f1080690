# SPDX-License-Identifier: Apache-2.0
"""A baseline that was measured before its rollout began: how far back it may go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.base import clock
from edgetune.base.documents.head import archive_key
from edgetune.base.documents.sample import Sample
from edgetune.base.errors import SourceError
from edgetune.rollout.evidence import sampling
from edgetune.rollout.evidence.sampling import measured_since
from edgetune.rollout.record.rollout import read_rollout
from edgetune.rollout.steps.check_baseline import check_baseline
from edgetune.rollout.steps.set_rollout_state import set_rollout_state
from tests.support.builders import as_samples, samples
from tests.support.virtual_clock import VirtualClock
from tests.support.world import World

HOSTS = [f"e{n:03}" for n in range(8)]
OPTIONS: dict[str, Any] = {"baseline": 3600, "soak": 3600, "interval": 10, "warmup": 300}


@pytest.fixture
def time() -> Iterator[VirtualClock]:
    made = VirtualClock(at=1_796_000_000.0, look=0.0)
    with clock.use(made):
        yield made


def measured(world: World, seconds: float) -> None:
    """All hosts were sampled for so long until now."""
    start = clock.wall() - seconds
    rows = as_samples(samples(dict.fromkeys(HOSTS, 2.0), start, seconds))
    world.context.samples.add("lab1", rows)


def since(world: World) -> float:
    """How many seconds ago the baseline could have begun."""
    opened = read_rollout(world.context, world.rollout)
    return round(clock.wall() - measured_since(opened, 3600.0))


@pytest.fixture
def world(tmp_path: Path, time: VirtualClock) -> World:
    return World(tmp_path, **OPTIONS, past_baseline=True)


def test_what_was_measured_is_not_waited_for(world: World, time: VirtualClock) -> None:
    measured(world, 5000)
    marked = world.mark("baseline")
    assert marked["until"] - clock.wall() == 20
    assert marked["message"] == "baseline: 1h of the baseline were measured before"
    assert world.head.baseline[0] == clock.wall() - 3600
    time.wait(20)
    measured_by = check_baseline(world.context, world.rollout, world.epoch)
    assert not measured_by["waits"]
    assert read_rollout(world.context, world.rollout).baseline() is not None
    # Carried on, it begins where it began.
    begun = world.head.baseline[0]
    world.mark("baseline")
    assert world.head.baseline[0] == begun


def test_who_stops_while_looking_back_has_no_new_epoch(
    world: World, time: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the workflow has lost its rollout, and nobody carries it on for ``owner_timeout``."""
    measured(world, 5000)
    read = world.context.samples.window

    def stops(*given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(world.context.samples, "window", stops)
    with pytest.raises(KeyboardInterrupt):
        world.mark("baseline")
    monkeypatch.setattr(world.context.samples, "window", read)
    assert world.mark("baseline")["until"] - clock.wall() == 20


@pytest.mark.parametrize(("past", "seconds"), [(True, 2400), (False, 3600)])
def test_a_part_counts_and_nothing_without_the_option(
    tmp_path: Path, time: VirtualClock, past: bool, seconds: int
) -> None:
    world = World(tmp_path, **OPTIONS, past_baseline=past)
    measured(world, 1200)
    assert world.mark("baseline")["until"] - clock.wall() == seconds


def test_nothing_measured_is_nothing(world: World, time: VirtualClock) -> None:
    assert since(world) == 0
    # Nor is what ended an hour ago, or is of some hosts only.
    measured(world, 3000)
    time.wait(3600)
    assert since(world) == 0
    rows = as_samples(samples(dict.fromkeys(HOSTS[:7], 2.0), clock.wall() - 3000, 3000))
    world.context.samples.add("lab1", rows)
    assert since(world) == 0
    assert world.mark("baseline")["until"] - clock.wall() == 3600


def test_it_begins_after_a_gap(world: World, time: VirtualClock) -> None:
    measured(world, 1500)
    time.wait(400)
    measured(world, 0)
    assert since(world) == 0
    time.wait(100)
    measured(world, 100)
    assert since(world) == 100


def test_it_begins_a_while_after_the_last_boot_of_any_host(
    world: World, time: VirtualClock
) -> None:
    rows = as_samples(samples(dict.fromkeys(HOSTS, 2.0), clock.wall() - 3600, 3600))
    border = clock.wall() - 1000
    booted = [
        replace(row, boot_id="before") if row.host == "e003" and row.time < border else row
        for row in rows
    ]
    world.context.samples.add("lab1", booted)
    # Since the first sample of its present boot, without the warm-up of the plan.
    assert since(world) == 1000 - 300


def test_it_begins_after_the_last_rollout(world: World, time: VirtualClock) -> None:
    measured(world, 3000)
    for state in ("baseline", "changing", "rolling_back", "rolled_back"):
        world.mark(state)
    time.wait(600)
    measured(world, 3600)
    world.begin_planned(world.plan.digest)
    # Its last hosts were changed then: they have the warm-up of the plan.
    assert since(world) == 600 - 300


def test_without_the_end_of_a_rollout_or_without_samples_it_begins_now(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(world, 3000)
    unreadable = archive_key("lab1-20260101T100000-7a54")
    world.context.store.put(unreadable, "{")
    assert since(world) == 0
    world.context.store.delete(unreadable)
    assert since(world) == 3000

    def away(*given: Any) -> Any:
        raise SourceError("prometheus: does not answer")

    monkeypatch.setattr(world.context.samples, "window", away)
    assert since(world) == 0


def test_what_takes_too_long_to_read_is_left_out(
    world: World, time: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(world, 3600)
    read = world.context.samples.window
    monkeypatch.setattr(sampling, "_PART", 600.0)

    def slow(*given: Any) -> Any:
        time.wait(sampling._PATIENCE / 2)
        return read(*given)

    monkeypatch.setattr(world.context.samples, "window", slow)
    opened = read_rollout(world.context, world.rollout)
    now = clock.wall()
    assert now - measured_since(opened, 3600.0) == 1200


def test_where_the_past_leaves_doubts_the_rollouts_own_time_is_waited_for(
    world: World, time: VirtualClock
) -> None:
    rows = [
        Sample(row.host, row.time, row.boot_id, row.uptime, {}, row.gauges)
        for row in as_samples(samples(dict.fromkeys(HOSTS, 2.0), clock.wall() - 3600, 3600))
    ]
    world.context.samples.add("lab1", rows)
    world.mark("baseline")
    time.wait(20)
    told = check_baseline(world.context, world.rollout, world.epoch)
    assert told["waits"] and "begins anew, without what was measured before" in told["message"]
    assert world.head.baseline == [world.head.created, world.head.created + 3600]
    assert read_rollout(world.context, world.rollout).baseline() is None
    # It is asked once: what is measured then counts as ever.
    time.wait(3600)
    measured(world, 3600)
    assert not check_baseline(world.context, world.rollout, world.epoch)["waits"]
    set_rollout_state(world.context, world.rollout, world.epoch, "changing")
