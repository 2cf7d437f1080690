# SPDX-License-Identifier: Apache-2.0
"""The record says since when each host is out of service."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from edgetune.documents.batch import HostStep
from edgetune.report.service import times_out
from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from tests.support.world import World, changing


@pytest.fixture
def world(tmp_path: Path) -> World:
    return changing(tmp_path)


def of(world: World, batch: int) -> HostStep:
    """The only host of a batch."""
    (step,) = world.batch(batch).hosts.values()
    return step


def test_a_drain_writes_down_when_it_began(world: World) -> None:
    began = time.time()
    world.step(begin_drain, 0)
    kept = of(world, 0).out_at
    assert began - 1 <= kept <= time.time()
    world.roll(0)
    assert of(world, 0).out_at == pytest.approx(kept, abs=0.1)
    assert of(world, 0).at >= kept


def test_a_rollback_goes_on_with_the_absence(world: World) -> None:
    world.roll(0, until=reboot_hosts)
    kept = of(world, 0).out_at
    back = world.mark("rolling_back")["first_batch"]
    assert of(world, back).out_at == pytest.approx(kept, abs=0.1)
    world.roll(back)
    batches = [*read_rollout(world.context, world.rollout).batches()]
    (host,) = world.at(0)
    out = times_out(batches, time.time())[host]
    assert (out.still, out.recorded) == (False, True)
    assert out.seconds == pytest.approx(of(world, back).at - kept, abs=0.2)


def test_what_serves_again_is_taken_back_with_a_new_absence(world: World) -> None:
    world.roll(0)
    back = world.mark("rolling_back")["first_batch"]
    assert of(world, back).out_at == 0
    world.step(begin_drain, back)
    assert of(world, back).out_at >= of(world, 0).at


def test_a_host_that_is_never_drained_was_not_out(tmp_path: Path) -> None:
    live = changing(tmp_path, disruption="live")
    live.roll(0)
    assert {step.out_at for step in live.batch(0).hosts.values()} == {0}
