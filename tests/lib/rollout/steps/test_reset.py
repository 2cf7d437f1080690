# SPDX-License-Identifier: Apache-2.0
"""Hosts that do not reboot by themselves, and hosts that never come back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from edgetune.errors import RefusedError
from edgetune.inventory import Host
from edgetune.rollout import lease
from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.check_rebooted import check_rebooted
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.resume_all import resume_all
from edgetune.rollout.steps.rollout_status import rollout_status
from edgetune.rollout.steps.stop_all import stop_all
from tests.support.bmcs import EARLY, HOME, SNOOP
from tests.support.virtual_clock import VirtualClock
from tests.support.world import BiosWorld, Died

FIRST, SECOND = 0, 2
RESET_AFTER, DEADLINE = 30.0, 100.0


@pytest.fixture
def world(tmp_path: Path) -> BiosWorld:
    """Its rollout changes hosts; nobody is told to reboot yet."""
    made = BiosWorld(tmp_path, reset_after=RESET_AFTER, reboot_deadline=DEADLINE)
    made.enter(force_restart=True)
    return made


def _told(world: BiosWorld, *heeds: str) -> str:
    """The first host, told to reboot; of the ways to restart it heeds only these."""
    (host,) = world.at(FIRST)
    world.hosts.heeds[host] = set(heeds)
    world.roll(FIRST, until=reboot_hosts)
    world.step(reboot_hosts, FIRST)
    return host


def _check(world: BiosWorld, batch: int = FIRST) -> tuple[int, list[str]]:
    result = world.step(check_rebooted, batch)
    world.hosts.reboot()
    return result["waiting"], result["failed"]


def test_a_host_that_reboots_by_itself_is_reset_by_nobody(
    world: BiosWorld, clock: VirtualClock
) -> None:
    host = _told(world, "reboot")
    for _ in range(9):
        assert _check(world) in ((1, []), (0, []))
        clock.wait(RESET_AFTER)
    assert (world.at(FIRST), world.bmcs.told("reset")) == ({host: "rebooted"}, [])


def test_each_way_is_tried_once_and_has_its_time(world: BiosWorld, clock: VirtualClock) -> None:
    host = _told(world, "ForceRestart")
    clock.wait(RESET_AFTER - 5)
    assert (_check(world), world.bmcs.told("reset")) == ((1, []), [])
    clock.wait(10)
    for _ in range(3):
        assert _check(world) == (1, [])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulRestart"]
    clock.wait(RESET_AFTER + 5)
    assert _check(world) == (1, [])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulRestart", "ForceRestart"]
    assert _check(world) == (0, [])
    assert world.bmcs.mode(host) == (HOME, None)
    assert {request["os_answers"] for _, verb, request in world.bmcs.asked if verb == "reset"} == {
        True
    }


def test_nothing_is_forced_that_the_plan_does_not_show(tmp_path: Path, clock: VirtualClock) -> None:
    world = BiosWorld(tmp_path, reset_after=RESET_AFTER, reboot_deadline=DEADLINE)
    world.enter()
    host = _told(world)
    seen = [_wait(world, clock) for _ in range(9)]
    assert seen[-1] == (0, [host])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulRestart"]
    error = world.batch(FIRST).hosts[host].error or ""
    assert "did not reboot within 1m40s, though its BMC was asked for GracefulRestart" in error


def _shutting_down(tmp_path: Path) -> BiosWorld:
    """Machines that take no graceful restart."""
    world = BiosWorld(tmp_path, reset_after=RESET_AFTER, reboot_deadline=DEADLINE)
    for name in world.bmcs.resets:
        world.bmcs.resets[name] = ("On", "ForceOff", "GracefulShutdown", "ForceRestart")
    world.enter(force_restart=True)
    return world


def test_a_machine_without_a_graceful_restart_is_shut_down_and_turned_on(
    tmp_path: Path, clock: VirtualClock
) -> None:
    world = _shutting_down(tmp_path)
    host = _told(world, "GracefulShutdown")
    assert _wait(world, clock) == (1, [])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulShutdown"]
    assert _check(world) == (1, [])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulShutdown", "On"]
    assert _check(world) == (0, [])
    assert (world.at(FIRST), world.hosts.reboots(host)) == ({host: "rebooted"}, 1)
    (on,) = (told for _, verb, told in world.bmcs.asked if verb == "reset" and told["kind"] == "On")
    assert on["known"]["system"] == f"uuid-{host}"


def test_a_machine_that_takes_its_time_to_go_down_is_turned_on_then(
    tmp_path: Path, clock: VirtualClock
) -> None:
    world = _shutting_down(tmp_path)
    host = _told(world, "GracefulShutdown")
    _wait(world, clock)
    world.bmcs.off.clear()
    for _ in range(2):
        assert _check(world) == (1, [])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulShutdown"]
    world.bmcs.off.add(host)
    assert _check(world) == (1, [])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulShutdown", "On"]


def test_a_machine_that_stays_off_is_turned_on_again_after_its_time(
    tmp_path: Path, clock: VirtualClock
) -> None:
    world = _shutting_down(tmp_path)
    host = _told(world, "GracefulShutdown")
    _wait(world, clock)
    _check(world)
    world.hosts.unreachable.add(host)
    world.bmcs.off.add(host)
    assert [_check(world) for _ in range(3)] == [(1, [])] * 3
    assert world.bmcs.sent_to(host, "reset") == ["GracefulShutdown", "On"]
    assert _wait(world, clock) == (1, [])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulShutdown", "On", "On"]
    world.hosts.unreachable.add(host)
    world.bmcs.off.add(host)
    assert [_wait(world, clock) for _ in range(3)][-1] == (0, [host])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulShutdown", "On", "On"]


def test_a_machine_that_does_not_go_on_is_given_up(tmp_path: Path, clock: VirtualClock) -> None:
    world = _shutting_down(tmp_path)
    host = _told(world, "GracefulShutdown")
    _wait(world, clock)
    world.bmcs.turns_down = {"On"}
    assert [_wait(world, clock) for _ in range(5)][-1] == (0, [host])
    error = world.batch(FIRST).hosts[host].error or ""
    assert "asked for GracefulShutdown; its BMC refused On: answered 400 to On; its BMC" in error


@pytest.mark.parametrize("shut_down", [False, True])
def test_a_login_that_is_refused_is_not_tried_until_it_is_locked(
    tmp_path: Path, clock: VirtualClock, shut_down: bool
) -> None:
    world = _shutting_down(tmp_path)
    host = _told(world, "GracefulShutdown")
    if shut_down:
        _wait(world, clock)
    world.bmcs.faults[host] = {"refuses"}
    before = len(world.bmcs.told("reset"))
    for _ in range(5):
        _wait(world, clock)
    assert len(world.bmcs.told("reset")) == before + 1


def test_a_way_that_was_taken_is_not_told_as_refused_with_a_later_login(
    world: BiosWorld, clock: VirtualClock
) -> None:
    host = _told(world)
    _wait(world, clock)
    world.bmcs.faults[host] = {"refuses"}
    _wait(world, clock)
    refused = world.batch(FIRST).hosts[host].refused
    assert refused == {"ForceRestart": "the login is refused"}


def test_an_odd_answer_of_a_moment_leaves_the_gentle_way(
    world: BiosWorld, clock: VirtualClock
) -> None:
    host = _told(world, "GracefulRestart")
    world.bmcs.faults[host] = {"odd"}
    assert _wait(world, clock) == (1, [])
    assert world.bmcs.sent_to(host, "reset") == []
    world.bmcs.faults[host] = set()
    assert _check(world) == (1, [])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulRestart"]


def test_a_machine_that_somebody_else_turned_off_stays_off(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """It was forced last, hung in its POST, and was turned off by hand."""
    world = _shutting_down(tmp_path)
    host = _told(world)
    _wait(world, clock)
    _wait(world, clock)
    assert world.bmcs.sent_to(host, "reset") == ["GracefulShutdown", "ForceRestart"]
    world.hosts.unreachable.add(host)
    world.bmcs.off.add(host)
    _check(world)
    assert world.bmcs.sent_to(host, "reset") == ["GracefulShutdown", "ForceRestart"]


def test_what_was_stopped_before_it_was_sent_was_not_asked_for(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_PERMIT_HOLDS", 0.0)
    world = _shutting_down(tmp_path)
    host = _told(world)
    clock.wait(RESET_AFTER + 1)

    def stop(moment: str) -> None:
        if moment.startswith("after put edgetune.batch"):
            world.moments.at = lambda moment: None
            stop_all(world.context, requested_by="ana", reason="enough")

    world.moments.at = stop
    with pytest.raises(RefusedError, match="enough"):
        world.step(check_rebooted, FIRST)
    assert world.batch(FIRST).hosts[host].resets == []
    world.hosts.unreachable.add(host)
    world.bmcs.off.add(host)
    resume_all(world.context, requested_by="ana")
    _check(world)
    assert world.bmcs.sent_to(host, "reset") == []


def test_a_stop_between_two_resets_forgets_none_that_was_sent(
    world: BiosWorld, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_PERMIT_HOLDS", 0.0)
    hosts = list(world.at(SECOND))
    world.hosts.heeds.update(dict.fromkeys(hosts, set()))
    world.roll(SECOND, until=reboot_hosts)
    world.step(reboot_hosts, SECOND)
    clock.wait(RESET_AFTER + 1)

    def stop(moment: str) -> None:
        if moment == f"after {hosts[0]} reset GracefulRestart":
            world.moments.at = lambda moment: None
            stop_all(world.context, requested_by="ana", reason="enough")

    world.moments.at = stop
    with pytest.raises(RefusedError, match="enough"):
        world.step(check_rebooted, SECOND)
    asked = {name: world.batch(SECOND).hosts[name].resets for name in hosts}
    assert asked == {**dict.fromkeys(hosts, []), hosts[0]: ["GracefulRestart"]}
    resume_all(world.context, requested_by="ana")
    _check(world, SECOND)
    assert {tuple(world.bmcs.sent_to(name, "reset")) for name in hosts} == {("GracefulRestart",)}


def test_a_host_that_was_quarantined_while_off_is_turned_on_by_the_next_rollback(
    tmp_path: Path, clock: VirtualClock
) -> None:
    world = _shutting_down(tmp_path)
    host = _told(world, "GracefulShutdown")
    _wait(world, clock)
    world.bmcs.faults[host] = {"unreachable"}
    for _ in range(5):
        _wait(world, clock)
    back = world.mark("rolling_back")["first_batch"]
    assert _check(world, back) == (0, [])
    assert world.at(back) == {host: "quarantined"}
    world.bmcs.faults[host] = set()
    again = world.mark("rolling_back")["first_batch"]
    assert _check(world, again) == (1, [])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulShutdown", "On"]


@pytest.mark.parametrize("what", ["change", "sham"])
def test_a_bmc_that_has_another_machine_by_now_restarts_none(
    tmp_path: Path, clock: VirtualClock, what: str
) -> None:
    world = BiosWorld(tmp_path, reset_after=RESET_AFTER, reboot_deadline=DEADLINE)
    world.enter(force_restart=True)
    number = next(n for n in range(6) if world.batch(n).batch_type == what)
    (host,) = world.at(number)
    world.hosts.heeds[host] = set()
    world.hosts.told_by_dmi = lambda name: {"uuid": f"uuid-{name}", "serial": ""}
    world.roll(number, until=reboot_hosts)
    world.step(reboot_hosts, number)
    world.bmcs.system[host] = "uuid-of-another"
    clock.wait(RESET_AFTER + 1)
    world.step(check_rebooted, number)
    assert world.bmcs.sent_to(host, "reset") == []


def test_whoever_takes_over_turns_a_machine_on_that_was_shut_down(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """And in a way back that has begun long after it went off."""
    world = _shutting_down(tmp_path)
    host = _told(world, "GracefulShutdown")
    clock.wait(RESET_AFTER + 1)
    _die(world, f"after {host} reset GracefulShutdown", check_rebooted)
    clock.wait(10 * DEADLINE)
    world.take_over()
    back = world.mark("rolling_back")["first_batch"]
    assert _check(world, back) == (1, [])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulShutdown", "On"]
    world.step(check_rebooted, back)
    assert host not in world.hosts.unreachable


def test_a_way_that_is_refused_is_left_at_once_and_not_told_as_done(
    world: BiosWorld, clock: VirtualClock
) -> None:
    host = _told(world)
    world.bmcs.turns_down = {"GracefulRestart"}
    assert _wait(world, clock) == (1, [])
    assert world.bmcs.sent_to(host, "reset") == ["ForceRestart"]
    assert [_wait(world, clock) for _ in range(4)][-1] == (0, [host])
    assert world.bmcs.sent_to(host, "reset") == ["ForceRestart"]
    error = world.batch(FIRST).hosts[host].error or ""
    refused = "its BMC refused GracefulRestart: answered 400 to GracefulRestart"
    assert f"though its BMC was asked for ForceRestart; {refused}" in error


def test_the_ways_are_those_of_each_machine(tmp_path: Path, clock: VirtualClock) -> None:
    world = BiosWorld(tmp_path, reset_after=RESET_AFTER, reboot_deadline=DEADLINE)
    for name in world.bmcs.resets:
        world.bmcs.resets[name] = ("On", "ForceOff", "ForceRestart")
    world.enter()
    host = _told(world)
    assert [_wait(world, clock) for _ in range(9)][-1] == (0, [host])
    assert world.bmcs.told("reset") == []
    error = world.batch(FIRST).hosts[host].error or ""
    assert "asked for" not in error


def test_a_bmc_that_says_post_for_ever_is_believed_for_a_while(
    world: BiosWorld, clock: VirtualClock
) -> None:
    """The host answers from the same boot all the while."""
    host = _told(world, "GracefulRestart")
    world.bmcs.faults[host] = {"posts"}
    assert _wait(world, clock) == (1, [])
    assert world.bmcs.sent_to(host, "reset") == []
    assert _wait(world, clock) == (1, [])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulRestart"]
    assert _check(world) == (0, [])


def _wait(world: BiosWorld, clock: VirtualClock) -> tuple[int, list[str]]:
    clock.wait(RESET_AFTER + 1)
    return _check(world)


def test_another_machine_behind_the_address_of_its_bmc_is_not_reset(
    world: BiosWorld, clock: VirtualClock
) -> None:
    host = _told(world)
    world.bmcs.system[host] = "uuid-of-another"
    seen = [_wait(world, clock) for _ in range(9)]
    assert seen[-1] == (0, [host])
    assert world.bmcs.sent_to(host, "reset") == []


def test_a_host_that_does_not_answer_is_never_reset(world: BiosWorld, clock: VirtualClock) -> None:
    host = _told(world)
    world.hosts.unreachable.add(host)
    for _ in range(3):
        assert _wait(world, clock) == (1, [])
    assert _wait(world, clock) == (0, [host])
    assert world.bmcs.told("reset") == []
    error = world.batch(FIRST).hosts[host].error or ""
    assert error.startswith("did not come back within 1m40s; its BMC says: power On")


@pytest.mark.parametrize("meanwhile", ["goes down", "comes back"])
def test_a_host_that_is_on_its_way_by_now_is_not_reset(
    world: BiosWorld, clock: VirtualClock, meanwhile: str
) -> None:
    """It answered when all were asked, and the others of its batch took their time."""
    host = _told(world, "reboot")
    real, asked = world.hosts.ask, []

    def ask(hosts: object, verb: str, *more: object, **named: object) -> object:
        asked.append(verb)
        if len(asked) == 2 and meanwhile == "goes down":
            world.hosts.unreachable.add(host)
        elif len(asked) == 2:
            world.hosts.reboot()
        return real(hosts, verb, *more, **named)  # type: ignore[arg-type]

    world.hosts.ask = ask  # type: ignore[method-assign, assignment]
    clock.wait(RESET_AFTER + 1)
    assert world.step(check_rebooted, FIRST)["waiting"] == 1
    assert (asked, world.bmcs.told("reset")) == (["facts", "facts"], [])
    if meanwhile == "comes back":
        assert _check(world) == (0, [])


def test_a_bmc_that_is_busy_is_asked_for_the_same_again(
    world: BiosWorld, clock: VirtualClock
) -> None:
    host = _told(world, "GracefulRestart")
    world.bmcs.faults[host] = {"busy"}
    assert _wait(world, clock) == (1, [])
    assert _check(world) == (1, [])
    assert world.bmcs.sent == [(host, "set", {SNOOP: HOME})]
    world.bmcs.faults[host] = set()
    assert _check(world) == (1, [])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulRestart"]
    assert _check(world) == (0, [])


def test_a_bmc_that_stays_busy_does_not_keep_its_host_for_ever(
    world: BiosWorld, clock: VirtualClock
) -> None:
    host = _told(world)
    world.bmcs.faults[host] = {"busy"}
    assert [_wait(world, clock) for _ in range(4)] == [*[(1, [])] * 3, (0, [host])]
    assert "its BMC says nothing: the machine is in POST" in str(world.batch(FIRST).failures)


@pytest.mark.parametrize("fault", ["unknown", "refuses"])
def test_a_reset_without_an_answer_is_not_sent_again(
    world: BiosWorld, clock: VirtualClock, fault: str
) -> None:
    """Nor is a login that is refused tried until it is locked."""
    host = _told(world)
    world.bmcs.faults[host] = {fault, "mute"}
    for _ in range(9):
        _wait(world, clock)
    asked_for = "asked for" in (world.batch(FIRST).hosts[host].error or "")
    assert asked_for == (fault == "unknown")
    kinds = [request["kind"] for _, verb, request in world.bmcs.asked if verb == "reset"]
    assert kinds == (["GracefulRestart", "ForceRestart"] if asked_for else ["GracefulRestart"])


def test_the_ways_come_before_a_deadline_that_is_shorter(
    tmp_path: Path, clock: VirtualClock
) -> None:
    world = BiosWorld(tmp_path, reset_after=DEADLINE, reboot_deadline=RESET_AFTER)
    world.enter()
    host = _told(world, "GracefulRestart")
    assert _wait(world, clock) == (1, [])
    assert _check(world) == (0, [])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulRestart"]


def test_who_takes_over_lets_the_host_reboot_itself_first(
    world: BiosWorld, clock: VirtualClock
) -> None:
    (host,) = world.at(FIRST)
    world.roll(FIRST, until=reboot_hosts)
    _die_before(world, f"{host} reboot", reboot_hosts)
    clock.wait(10 * DEADLINE)
    world.take_over()
    world.step(reboot_hosts, FIRST)
    assert _check(world) == (1, [])
    assert _check(world) == (0, [])
    assert (world.bmcs.told("reset"), world.hosts.reboots(host)) == ([], 1)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_whoever_dies_at_a_reset_leaves_one_at_most(
    world: BiosWorld, clock: VirtualClock, moment: str
) -> None:
    host = _told(world)
    clock.wait(RESET_AFTER + 1)
    _die(world, f"{moment} {host} reset GracefulRestart", check_rebooted)
    world.take_over()
    world.step(reboot_hosts, FIRST)
    _wait(world, clock)
    sent = ["GracefulRestart"] if moment == "after" else []
    assert world.bmcs.sent_to(host, "reset") == [*sent, "ForceRestart"]


def test_a_rollback_called_again_repeats_no_reset(world: BiosWorld, clock: VirtualClock) -> None:
    world.roll_all({"first_batch": FIRST, "end_batch": FIRST + 1})
    (host,) = world.at(FIRST)
    world.hosts.heeds[host] = set()
    back = world.mark("rolling_back")["first_batch"]
    world.roll(back, until=reboot_hosts)
    world.step(reboot_hosts, back)
    clock.wait(RESET_AFTER + 1)
    assert _check(world, back) == (1, [])
    again = world.mark("rolling_back")["first_batch"]
    assert world.at(again) == {host: "rebooting"}
    clock.wait(RESET_AFTER + 1)
    assert _check(world, again) == (1, [])
    # Told anew by whoever goes on, and reset only in ways that were not tried.
    clock.wait(DEADLINE)
    assert _check(world, again) == (0, [])
    assert world.at(again) == {host: "changed"}
    world.hosts.heeds[host] = {"ForceRestart"}
    world.step(reboot_hosts, again)
    clock.wait(RESET_AFTER + 1)
    assert _check(world, again) == (1, [])
    assert _check(world, again) == (0, [])
    assert world.bmcs.sent_to(host, "reset") == ["GracefulRestart", "ForceRestart"]
    assert world.bmcs.mode(host) == (EARLY, None)


def test_what_never_comes_back_is_quarantined_with_what_its_bmc_says(
    world: BiosWorld, clock: VirtualClock
) -> None:
    host = _told(world, "reboot")
    world.hosts.unreachable.add(host)
    events = [
        {"created": "2026-11-21T10:00:00Z", "severity": "Critical", "message": "CPU 1 failed"},
        {"created": "2026-11-20T10:00:00Z", "severity": "OK", "message": "Power on"},
    ]
    world.bmcs.said.update(boot_progress="MemoryInitializationStarted", events=events)
    clock.wait(DEADLINE + 1)
    assert _check(world) == (0, [host])
    back = world.mark("rolling_back")["first_batch"]
    assert _check(world, back) == (0, [])
    quarantined = read_rollout(world.context, world.rollout).head.quarantined
    assert quarantined[host].bmc == world.bmcs.said
    text = rollout_status(world.context, rollout=world.rollout)["text"]
    assert (
        f"quarantined: {host}: did not come back within 1m40s; its BMC says: power On, boot "
        "progress MemoryInitializationStarted, health OK, newest event 2026-11-21T10:00:00Z "
        "Critical CPU 1 failed" in text
    )
    assert "    2026-11-20T10:00:00Z OK Power on" in text
    assert world.bmcs.told("reset") == []


@pytest.mark.parametrize("way_out", ["reset", "evidence"])
def test_bmcs_of_a_batch_are_asked_all_at_once(
    world: BiosWorld, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, way_out: str
) -> None:
    """One by one, BMCs that are gone with their hosts would outlast the action."""
    world.roll(SECOND, until=reboot_hosts)
    hosts = list(world.at(SECOND))
    for host in hosts:
        world.hosts.heeds[host] = set()
    world.step(reboot_hosts, SECOND)
    asked, real = [], world.bmcs.ask

    def ask(hosts: Sequence[Host], verb: str, *more: Any, **named: Any) -> Any:
        asked.append((verb, [host.name for host in hosts]))
        return real(hosts, verb, *more, **named)

    monkeypatch.setattr(world.bmcs, "ask", ask)
    if way_out == "evidence":
        world.hosts.unreachable.update(hosts)
    clock.wait(DEADLINE + 1)
    _check(world, SECOND)
    assert asked == [(way_out, hosts)]


def _die_before(world: BiosWorld, effect: str, step: object) -> None:
    _die(world, f"before {effect}", step)


def _die(world: BiosWorld, at: str, step: object) -> None:
    def die(moment: str) -> None:
        if moment == at:
            raise Died(moment)

    world.moments.at = die
    with pytest.raises(Died):
        world.step(step, FIRST)
    world.moments.at = lambda moment: None
