# SPDX-License-Identifier: Apache-2.0
"""Two people take one rollout back at the same time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.documents.head import Head
from edgetune.errors import FencedError
from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.take_over_for_rollback import take_over_for_rollback
from edgetune.rollout.steps.take_over_rollout import take_over
from tests.support.world import World, changing


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Hosts of one batch are changed."""
    made = changing(tmp_path)
    made.roll(0)
    return made


def roll_back(world: World, by: str) -> dict[str, Any]:
    """The first step of ``roll_back_pop`` without an epoch."""
    marked = take_over_for_rollback(world.context, world.rollout, requested_by=by)
    world.epoch = marked["epoch"]
    return marked


def test_of_two_that_begin_at_once_the_second_ends_with_one_line(world: World) -> None:
    """The other one comes between the claim of this one and its entry into the state."""
    other: list[Any] = []

    def interrupted(*given: Any, **more: Any) -> Head:
        taken = take_over(*given, **more)
        if not other:
            other.append({})
            other[0] = roll_back(world, "bo")
        return taken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgetune.rollout.steps.take_over_for_rollback.take_over", interrupted)
        with pytest.raises(FencedError, match="is being rolled back already by bo") as error:
            roll_back(world, "ana")
    assert f"st2 run edgetune.recover_rollout rollout={world.rollout} carries it on" in str(
        error.value
    )
    head = read_rollout(world.context, world.rollout).head
    assert (head.state, head.epoch, head.restore_batches) == ("rolling_back", world.epoch, 1)
    world.roll_all(other[0])
    assert len(world.hosts.told("restore")) == 1
    assert world.hosts.tuned == set()


def test_a_later_one_takes_over_and_the_first_is_told_who_goes_on(world: World) -> None:
    first = roll_back(world, "ana")
    second = roll_back(world, "bo")
    with pytest.raises(FencedError, match=r"bo goes on with it \(rolling_back\), and nothing is"):
        drain_hosts(world.context, world.rollout, first["epoch"], first["first_batch"])
    world.roll_all(second)
    assert len(world.hosts.told("restore")) == 1
    assert world.hosts.tuned == set()
