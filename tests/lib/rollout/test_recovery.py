# SPDX-License-Identifier: Apache-2.0
"""Whoever carries a rollout on may die at any moment; the next one ends what was begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.check_health import check_health
from edgetune.rollout.steps.check_rebooted import check_rebooted
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.sample_hosts import sample_hosts
from edgetune.rollout.steps.verify_hosts import verify_hosts
from tests.support.world import Died, World, at_every_moment, changing

SHAM, LAST = 1, 2


def _with_clients(folder: Path) -> World:
    """Every server carries sessions, and one was in maintenance before we came."""
    world = changing(folder, batch_size=2)
    world.balancer.state[_others(world)] = "maint"
    world.balancer.clients = True
    world.balancer.servers()
    return world


def _others(world: World) -> str:
    return str(world.plan.batches[2].hosts[0])


def _change(world: World) -> None:
    world.roll_all({**world.mark("changing"), "end_batch": LAST + 1})


def _roll_back(world: World) -> None:
    world.roll_back()


def _begun(folder: Path) -> World:
    """One batch changed, one rebooted only, one that is changed and not rebooted yet."""
    world = _with_clients(folder)
    for batch in (0, SHAM):
        world.roll_all({"first_batch": batch, "end_batch": batch + 1})
    for step in (drain_hosts, check_drained, check_drained, apply_tuning):
        world.step(step, LAST)
    return world


@pytest.mark.slow
def test_a_batch_is_ended_wherever_its_owner_dies(tmp_path: Path) -> None:
    for moment, world in at_every_moment(lambda name: _with_clients(tmp_path / name), _change):
        work = [world.batch(number) for number in range(LAST + 1)]
        hosts = {name for batch in work for name in batch.hosts}
        tuned = {name for batch in work if batch.batch_type == "change" for name in batch.hosts}
        assert all(batch.finished for batch in work), moment
        assert world.hosts.tuned == tuned, moment
        assert {name: world.hosts.reboots(name) for name in hosts} == dict.fromkeys(hosts, 1)
        _nobody_is_left_out(world, moment)


@pytest.mark.slow
def test_a_rollback_is_ended_and_reboots_no_host_twice_wherever_its_owner_dies(
    tmp_path: Path,
) -> None:
    for moment, world in at_every_moment(lambda name: _begun(tmp_path / name), _roll_back):
        assert world.head.state == "rolled_back", moment
        assert world.hosts.tuned == set(), moment
        assert world.head.quarantined == {}, moment
        _nobody_is_left_out(world, moment)
        (first,), (sham,) = world.at(0), world.at(SHAM)
        reboots = {name: world.hosts.reboots(name) for name in (first, sham, *world.at(LAST))}
        # The last batch was changed and not rebooted yet, so it goes back without one.
        assert reboots == {first: 2, sham: 1, **dict.fromkeys(world.at(LAST), 0)}, moment


def _nobody_is_left_out(world: World, moment: str) -> None:
    expected = {**dict.fromkeys(world.balancer.state, "ready"), _others(world): "maint"}
    assert world.balancer.state == expected, moment
    assert world.hosts.not_ready == set(), moment
    assert world.hosts.disturbed == [], moment


def test_a_state_entered_again_begins_with_its_first_unfinished_batch(tmp_path: Path) -> None:
    world = changing(tmp_path)
    world.roll_all({"first_batch": 0, "end_batch": 2})
    world.roll(2, until=verify_hosts)
    world.take_over()
    marked = world.mark("changing")
    assert (marked["first_batch"], marked["end_batch"]) == (2, 4)
    world.roll_all(marked)
    assert world.hosts.told("apply") == [*world.at(0), *world.at(2)]


def test_of_a_state_whose_batches_are_finished_the_last_one_is_looked_at_again(
    tmp_path: Path,
) -> None:
    world = changing(tmp_path)
    world.roll_all({"first_batch": 0, "end_batch": 4})
    asked, log = world.hosts.changing(), list(world.balancer.log)
    marked = world.mark("changing")
    assert (marked["first_batch"], marked["end_batch"]) == (3, 4)
    world.roll_all(marked)
    assert (world.hosts.changing(), world.balancer.log) == (asked, log)


def test_a_batch_that_was_done_and_not_checked_is_checked(tmp_path: Path) -> None:
    world = changing(tmp_path)
    sample_hosts(world.context, rollout=world.rollout)
    for batch in (0, 1):
        world.roll(batch)
    world.take_over()
    assert world.mark("changing")["first_batch"] == 0
    (host,) = world.at(0)
    world.hosts.errors[host, "sample"] = "timed out"
    assert world.step(check_health, 0)["failed"] == [host]


def test_a_reboot_that_is_sent_late_has_its_time_from_then(tmp_path: Path) -> None:
    """Its owner died between writing it down and sending it, and nobody came for long."""
    world = changing(tmp_path)
    (host,) = world.at(0)
    world.roll(0, until=reboot_hosts)
    _dies_before(world, f"{host} reboot", lambda: world.step(reboot_hosts, 0))
    world.age(0)
    world.take_over()
    world.step(reboot_hosts, 0)
    result = world.step(check_rebooted, 0)
    assert (result["waiting"], result["failed"]) == (1, [])
    world.hosts.reboot()
    assert world.step(check_rebooted, 0)["waiting"] == 0


def _dies_before(world: World, effect: str, work: Callable[[], Any]) -> None:
    def die(moment: str) -> None:
        if moment == f"before {effect}":
            raise Died(moment)

    world.moments.at = die
    with pytest.raises(Died):
        work()
    world.moments.at = lambda moment: None
