# SPDX-License-Identifier: Apache-2.0
"""Whoever carries a rollout on may die at any moment; the next one ends what was begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.documents.batch import HostStep
from edgetune.documents.head import Head
from edgetune.errors import FencedError
from edgetune.report.service import times_out
from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.take_over_rollout import take_over
from tests.support.world import Died, World, at_every_moment, changing

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


def test_a_state_entered_again_begins_with_its_first_unfinished_batch_or_with_the_last(
    world: World,
) -> None:
    world.roll_all({"first_batch": 0, "end_batch": 2})
    world.roll(2, until="verify_hosts")
    world.take_over()
    marked = world.mark("changing")
    assert (marked["first_batch"], marked["end_batch"]) == (2, 4)
    world.roll_all(marked)
    assert world.hosts.told("apply") == [*world.at(0), *world.at(2)]
    asked, log = world.hosts.changing(), list(world.balancer.log)
    marked = world.mark("changing")
    assert (marked["first_batch"], marked["end_batch"]) == (3, 4)
    world.roll_all(marked)
    assert (world.hosts.changing(), world.balancer.log) == (asked, log)


def test_a_batch_that_was_done_and_not_checked_is_checked(world: World) -> None:
    world.run("sample_hosts")
    for batch in (0, 1):
        world.roll(batch)
    world.take_over()
    assert world.mark("changing")["first_batch"] == 0
    (host,) = world.at(0)
    world.hosts.errors[host, "sample"] = "timed out"
    assert world.step("check_health", 0)["failed"] == [host]


def test_a_reboot_that_is_sent_late_has_its_time_from_then(world: World) -> None:
    """Its owner died between writing it down and sending it, and nobody came for long."""
    (host,) = world.at(0)
    world.roll(0, until="reboot_hosts")
    _dies_before(world, f"{host} reboot", lambda: world.step("reboot_hosts", 0))
    world.age(0)
    world.take_over()
    world.step("reboot_hosts", 0)
    result = world.step("check_rebooted", 0)
    assert (result["waiting"], result["failed"]) == (1, [])
    world.hosts.reboot()
    assert world.step("check_rebooted", 0)["waiting"] == 0


def _dies_before(world: World, effect: str, work: Callable[[], Any]) -> None:
    def die(moment: str) -> None:
        if moment == f"before {effect}":
            raise Died(moment)

    world.moments.at = die
    with pytest.raises(Died):
        work()
    world.moments.at = lambda moment: None


class TestTwoRollbacks:
    """Two people take one rollout back, of which hosts of one batch are changed."""

    def begins(self, world: World, by: str) -> dict[str, Any]:
        """The first step of ``roll_back_pop`` without an epoch."""
        marked = world.run("take_over_for_rollback", requested_by=by)
        world.epoch = marked["epoch"]
        return marked

    def ends(self, world: World, marked: dict[str, Any]) -> None:
        world.roll_all(marked)
        assert len(world.hosts.told("restore")) == 1
        assert world.hosts.tuned == set()

    def test_of_two_that_begin_at_once_the_second_ends_with_one_line(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other one comes between the claim of this one and its entry into the state."""
        world.roll(0)
        other: list[Any] = []

        def interrupted(*given: Any, **more: Any) -> Head:
            taken = take_over(*given, **more)
            if not other:
                other.append({})
                other[0] = self.begins(world, "bo")
            return taken

        at = "edgetune.rollout.steps.take_over_for_rollback.take_over"
        monkeypatch.setattr(at, interrupted)
        with pytest.raises(FencedError, match="is being rolled back already by bo") as error:
            self.begins(world, "ana")
        says = f"st2 run edgetune.recover_rollout rollout={world.rollout} carries it on"
        assert says in str(error.value)
        head = world.head
        assert (head.state, head.epoch, head.restore_batches) == ("rolling_back", world.epoch, 1)
        self.ends(world, other[0])

    def test_a_later_one_takes_over_and_the_first_is_told_who_goes_on(self, world: World) -> None:
        world.roll(0)
        first, second = self.begins(world, "ana"), self.begins(world, "bo")
        says = r"bo goes on with it \(rolling_back\), and nothing is"
        with pytest.raises(FencedError, match=says):
            world.run("drain_hosts", epoch=first["epoch"], batch=first["first_batch"])
        self.ends(world, second)


class TestTimeOut:
    """The record says since when each host is out of service."""

    def of(self, world: World, batch: int) -> HostStep:
        """The only host of a batch."""
        (step,) = world.batch(batch).hosts.values()
        return step

    def test_a_rollback_goes_on_with_the_absence(self, world: World) -> None:
        world.roll(0, until="reboot_hosts")
        kept = self.of(world, 0).out_at
        assert kept > 0
        back = world.mark("rolling_back")["first_batch"]
        assert self.of(world, back).out_at == pytest.approx(kept, abs=0.1)
        world.roll(back)
        (host,) = world.at(0)
        last = self.of(world, back).at
        out = times_out([*read_rollout(world.context, world.rollout).batches()], last)[host]
        assert (out.still, out.recorded) == (False, True)
        assert out.seconds == pytest.approx(last - kept, abs=0.2)

    def test_what_serves_again_is_taken_back_with_a_new_absence(self, world: World) -> None:
        world.roll(0)
        done = self.of(world, 0)
        assert 0 < done.out_at <= done.at
        back = world.mark("rolling_back")["first_batch"]
        assert self.of(world, back).out_at == 0
        world.step("begin_drain", back)
        assert self.of(world, back).out_at >= done.at

    def test_a_host_that_is_never_drained_was_not_out(self, tmp_path: Path) -> None:
        live = changing(tmp_path, disruption="live")
        live.roll(0)
        assert {step.out_at for step in live.batch(0).hosts.values()} == {0}
