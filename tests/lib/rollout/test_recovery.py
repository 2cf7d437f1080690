# SPDX-License-Identifier: Apache-2.0
"""Whoever carries a rollout on may die at any moment; the next one ends what was begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgetune.base.documents.batch import HostStep
from edgetune.report.headline import times_out
from edgetune.rollout.record.rollout import read_rollout
from tests.support.world import World, at_every_moment, changing

SHAM, LAST = 1, 2


@pytest.fixture
def world(tmp_path: Path) -> World:
    return changing(tmp_path)


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


def _begun(folder: Path) -> World:
    """One batch changed, one rebooted only, one that is changed and not rebooted yet."""
    world = _with_clients(folder)
    for batch in (0, SHAM):
        world.roll_all({"first_batch": batch, "end_batch": batch + 1})
    for step in ("drain_hosts", "check_drained", "check_drained", "apply_tuning"):
        world.step(step, LAST)
    return world


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.slow
def test_a_rollback_is_ended_and_reboots_no_host_twice_wherever_its_owner_dies(
    tmp_path: Path,
) -> None:
    def begin(name: str) -> World:
        return _begun(tmp_path / name)

    for moment, world in at_every_moment(begin, World.roll_back):
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


def test_a_rollback_goes_on_with_the_absence(world: World) -> None:
    """The record says since when each host is out of service."""
    world.roll(0, until="reboot_hosts")
    kept = _of(world, 0).out_at
    assert kept > 0
    back = world.mark("rolling_back")["first_batch"]
    assert _of(world, back).out_at == pytest.approx(kept, abs=0.1)
    world.roll(back)
    (host,) = world.at(0)
    last = _of(world, back).at
    out = times_out([*read_rollout(world.context, world.rollout).batches()], last)[host]
    assert (out.still, out.recorded) == (False, True)
    assert out.seconds == pytest.approx(last - kept, abs=0.2)


def _of(world: World, batch: int) -> HostStep:
    """The only host of a batch."""
    (step,) = world.batch(batch).hosts.values()
    return step
