# SPDX-License-Identifier: Apache-2.0
"""The steps of a rollout against a load balancer and hosts that a test controls."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from edgetune.errors import DrainError, FencedError, RefusedError
from edgetune.rollout.lease import as_owner
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.check_health import check_health
from edgetune.rollout.steps.claim_pop import claim_pop
from edgetune.rollout.steps.compare_groups import compare_groups
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.find_left import find_left
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.sample_hosts import sample_hosts
from edgetune.rollout.steps.set_rollout_state import set_rollout_state
from edgetune.rollout.steps.take_over_rollout import take_over_rollout
from tests.support.builders import concluded
from tests.support.scenarios import play, scenarios
from tests.support.world import World, changing


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.mark("baseline")
    made.mark("changing")
    return made


@pytest.mark.parametrize("case", scenarios(__file__))
def test_a_rollout_goes_on_as_its_steps_promise(case: Any, tmp_path: Path, clock: Any) -> None:
    play(case, tmp_path, clock)


def test_every_step_is_harmless_the_second_time(world: World) -> None:
    for batch in (0, 1):
        world.roll(batch)
    asked, log = len(world.hosts.asked), list(world.balancer.log)
    for batch in (0, 1):
        world.roll(batch)
    assert world.balancer.log == log
    assert [verb for _, verb, _ in world.hosts.asked[asked:] if verb != "sample"] == []


def test_the_drain_is_written_down_before_it_happens(world: World) -> None:
    def dies(server: str) -> None:
        raise DrainError("the connection broke")

    world.balancer.withdraw = dies  # type: ignore[method-assign]
    with pytest.raises(DrainError):
        world.step(begin_drain, 0)
    assert set(world.at(0).values()) == {"draining"}


def test_an_older_epoch_can_do_nothing(world: World) -> None:
    old = world.epoch
    taken = take_over_rollout(world.context, world.rollout)
    for function in (begin_drain, apply_tuning, reboot_hosts):
        with pytest.raises(FencedError, match="has lost its claim on lab1"):
            function(world.context, world.rollout, old, 0)
    assert taken["epoch"] == old + 1
    assert world.balancer.log == []


def test_an_orphan_is_found_by_its_owner_once(world: World) -> None:
    assert find_left(world.context, "run-1")["rollout"] == world.rollout
    assert world.take_over(execution="run-1", owner="run-3")["claimed"]
    assert not world.take_over(execution="run-1", owner="run-4")["claimed"]
    assert not find_left(world.context, "run-1")["rollout"]
    assert find_left(world.context, "run-3")["rollout"] == world.rollout
    world.mark("rolling_back")
    world.mark("rolled_back")
    assert not find_left(world.context, "run-3")["rollout"]
    assert not take_over_rollout(world.context, world.rollout)["claimed"]


def test_a_changed_host_that_is_unwell_fails_its_batch(world: World) -> None:
    sample_hosts(world.context, rollout=world.rollout)
    world.roll(0)
    assert world.step(check_health, 0)["failed"] == []
    (host,) = world.plan.batches[0].hosts
    world.hosts.errors[host, "sample"] = "timed out"
    result = world.step(check_health, 0)
    assert result["error"] == f"{host}: does not answer"


def test_a_baseline_longer_than_the_claim_does_not_lose_it(world: World) -> None:
    world.context.claims.take("lab1", world.rollout, 0.05, after=world.epoch)
    world.epoch += 1
    time.sleep(0.1)
    with pytest.raises(RefusedError, match=f"lab1 has a rollout that is changing: {world.rollout}"):
        claim_pop(world.context, plan=world.plan.digest)
    world.context.claims.take("lab1", world.rollout, 60)
    world.epoch += 1
    world.roll(0)
    assert "done" in world.at(0).values()


def test_a_drain_that_waited_too_long_drains_nobody(world: World) -> None:
    real = world.balancer.servers

    def somebody_takes_over() -> Any:
        world.balancer.servers = real  # type: ignore[method-assign]
        take_over_rollout(world.context, world.rollout)
        return real()

    world.balancer.servers = somebody_takes_over  # type: ignore[method-assign]
    with pytest.raises(FencedError):
        world.step(begin_drain, 0)
    assert world.balancer.log == []
    assert set(world.at(0).values()) == {"planned"}


def test_an_owner_that_died_between_epoch_and_record_does_not_wedge_the_soak(world: World) -> None:
    world.mark("soaking")
    world.context.claims.take("lab1", world.rollout, 60, after=world.epoch)
    assert compare_groups(world.context, world.rollout)["decision"] == "wait"


@pytest.mark.parametrize("decided", ["", "wait", "hold", "roll_back"])
@pytest.mark.parametrize("state", ["soaking", "held"])
def test_nothing_is_promoted_unless_its_verdict_says_so(
    tmp_path: Path, decided: str, state: str
) -> None:
    """Whoever calls the action, and however the verdict came about."""
    world = changing(tmp_path)
    for each in ("soaking", state):
        world.mark(each)
    opened = as_owner(world.context, world.rollout)
    opened.head.verdict = concluded(decided) if decided else None
    opened.save()
    with pytest.raises(RefusedError, match=f"decides {decided or 'nothing'}; nothing is promoted"):
        set_rollout_state(world.context, world.rollout, world.epoch, "promoting")
    assert (world.head.state, world.head.epoch) == (state, world.epoch)
