# SPDX-License-Identifier: Apache-2.0
"""The steps of a rollout against a load balancer and hosts that a test controls."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from edgetune.errors import DrainError, FencedError, InputError, RefusedError
from edgetune.rollout.lease import as_owner
from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.check_health import check_health
from edgetune.rollout.steps.check_rebooted import check_rebooted
from edgetune.rollout.steps.claim_pop import claim_pop
from edgetune.rollout.steps.compare_groups import compare_groups
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.find_left import find_left
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.rollout_status import rollout_status
from edgetune.rollout.steps.sample_hosts import sample_hosts
from edgetune.rollout.steps.set_rollout_state import set_rollout_state
from edgetune.rollout.steps.take_over_rollout import take_over_rollout
from tests.support.builders import concluded
from tests.support.world import World, changing


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.mark("baseline")
    made.mark("changing")
    return made


def test_a_batch_goes_the_whole_way_and_comes_back(world: World) -> None:
    world.roll(0)
    (host,) = world.plan.batches[0].hosts
    assert world.at(0) == {host: "done"}
    assert world.hosts.tuned == {host}
    assert world.balancer.log == [(host, "drain"), (host, "maint"), (host, "ready")]
    assert world.hosts.boot[host] == f"{host}-boot-1+"


def test_every_step_is_harmless_the_second_time(world: World) -> None:
    for batch in (0, 1):
        world.roll(batch)
    asked, log = len(world.hosts.asked), list(world.balancer.log)
    for batch in (0, 1):
        world.roll(batch)
    assert world.balancer.log == log
    assert [verb for _, verb, _ in world.hosts.asked[asked:] if verb != "sample"] == []


def test_drain_is_never_taken_for_the_previous_state(world: World) -> None:
    (host,) = world.plan.batches[0].hosts
    world.balancer.state[host] = "maint"
    world.step(begin_drain, 0)
    world.step(begin_drain, 0)
    step = read_rollout(world.context, world.rollout).batch(0).hosts[host]
    assert step.lb_before == "maint"
    assert world.balancer.log == []


@pytest.mark.parametrize("state", ["drain", "maint"])
def test_what_somebody_else_did_to_a_server_is_never_changed(world: World, state: str) -> None:
    (host,) = world.plan.batches[0].hosts
    world.balancer.state[host] = state
    world.roll(0)
    assert world.hosts.tuned == {host}
    assert world.balancer.log in ([], [(host, state)])


def test_the_drain_is_written_down_before_it_happens(world: World) -> None:
    def dies(server: str) -> None:
        raise DrainError("the connection broke")

    world.balancer.withdraw = dies  # type: ignore[method-assign]
    with pytest.raises(DrainError):
        world.step(begin_drain, 0)
    assert set(world.at(0).values()) == {"draining"}


def test_min_in_service_of_the_pop_holds_against_everybody_s_drains(world: World) -> None:
    for name in list(world.balancer.up)[:4]:
        world.balancer.up[name] = False
    serving = [n for n in world.plan.batches[2].hosts if world.balancer.up[n]]
    if not serving:
        pytest.fail("the seed of the plan must leave a serving host in batch 2")
    with pytest.raises(RefusedError, match=r"would leave \d hosts in service, 4 must stay"):
        world.step(begin_drain, 2)
    assert world.balancer.log == []


def test_hosts_that_serve_nothing_need_no_room(world: World) -> None:
    out = world.plan.batches[2].hosts
    for name in [*out, *world.plan.batches[3].hosts]:
        world.balancer.up[name] = False
    world.step(begin_drain, 2)
    assert set(world.at(2).values()) == {"draining"}


def test_an_unknown_server_is_named_and_nobody_is_drained(world: World) -> None:
    (host,) = world.plan.batches[0].hosts
    del world.balancer.state[host]
    with pytest.raises(DrainError, match=f"has no server '{host}'"):
        world.step(begin_drain, 0)
    assert world.balancer.log == []


def test_a_host_whose_sessions_never_end_is_put_back_and_skipped(world: World) -> None:
    (host,) = world.plan.batches[0].hosts
    world.balancer.sessions[host] = 3
    world.step(begin_drain, 0)
    assert world.step(check_drained, 0)["waiting"] == 1
    world.age(0)
    result = world.step(check_drained, 0)
    assert (result["waiting"], result["skipped"]) == (0, [host])
    assert world.balancer.state[host] == "ready"
    world.step(apply_tuning, 0)
    assert world.hosts.tuned == set()


def test_a_plan_with_force_goes_on_with_sessions(tmp_path: Path) -> None:
    world = World(tmp_path, drop_sessions=True)
    for state in ("baseline", "changing"):
        world.mark(state)
    (host,) = world.plan.batches[0].hosts
    world.balancer.sessions[host] = 3
    world.step(begin_drain, 0)
    assert world.step(check_drained, 0)["waiting"] == 1
    world.age(0)
    world.step(check_drained, 0)
    assert world.at(0) == {host: "drained"}


def test_a_host_that_does_not_come_back_fails_the_batch(world: World) -> None:
    (host,) = world.plan.batches[0].hosts
    world.step(begin_drain, 0)
    world.step(check_drained, 0)
    world.step(apply_tuning, 0)
    world.step(reboot_hosts, 0)
    assert world.step(check_rebooted, 0)["waiting"] == 1
    world.age(0)
    result = world.step(check_rebooted, 0)
    assert result["failed"] == [host]
    assert "did not reboot within 1s" in result["error"]


def test_the_boot_id_is_written_down_before_the_reboot_is_sent(world: World) -> None:
    (host,) = world.plan.batches[0].hosts
    world.step(begin_drain, 0)
    world.step(check_drained, 0)
    world.step(apply_tuning, 0)
    world.hosts.errors[host, "reboot"] = "the connection broke"
    world.step(reboot_hosts, 0)
    step = read_rollout(world.context, world.rollout).batch(0).hosts[host]
    assert (step.step, step.boot_before) == ("rebooting", f"{host}-boot-1")
    request = next(r for n, verb, r in world.hosts.asked if verb == "reboot")
    assert request == {"epoch": world.epoch, "boot_id": f"{host}-boot-1", "drained": True}


def test_an_older_epoch_can_do_nothing(world: World) -> None:
    old = world.epoch
    taken = take_over_rollout(world.context, world.rollout)
    for function in (begin_drain, apply_tuning, reboot_hosts):
        with pytest.raises(FencedError, match="has lost its claim on lab1"):
            function(world.context, world.rollout, old, 0)
    assert taken["epoch"] == old + 1
    assert world.balancer.log == []


def test_a_second_rollout_on_the_pop_is_refused(world: World) -> None:
    with pytest.raises(RefusedError, match=f"lab1 has a rollout that is changing: {world.rollout}"):
        claim_pop(world.context, plan=world.plan.digest)


@pytest.mark.parametrize("state", ["promoting", "complete", "held", "rolled_back"])
def test_states_follow_one_another(world: World, state: str) -> None:
    with pytest.raises(RefusedError, match=f"is changing; it cannot become {state}"):
        world.mark(state)


def test_a_rollback_restores_every_touched_host_and_only_those(world: World) -> None:
    for batch in (0, 1, 2):
        world.roll(batch)
    tuned = set(world.hosts.tuned)
    assert len(tuned) == 4
    marked = world.mark("rolling_back")
    world.hosts.asked.clear()
    for batch in range(marked["first_batch"], marked["end_batch"]):
        world.roll(batch)
    assert world.hosts.tuned == set()
    assert {n for n, verb, _ in world.hosts.asked if verb == "restore"} == tuned
    assert set(world.balancer.state.values()) == {"ready"}
    ended = world.mark("rolled_back")
    assert ended["quarantined"] == {}
    # An action of the workflow that was changing hosts may still run.
    assert world.context.claims.expiries(["lab1"])["lab1"] <= world.context.config.claim_grace


def test_a_rollback_begins_with_hosts_that_are_out_of_service(world: World) -> None:
    world.roll(0)
    world.roll(1)
    for step in (begin_drain, check_drained, apply_tuning):
        world.step(step, 2)
    marked = world.mark("rolling_back")
    first = read_rollout(world.context, world.rollout).batch(marked["first_batch"])
    assert sorted(first.hosts) == sorted(world.plan.batches[2].hosts)
    assert {host.lb_before for host in first.hosts.values()} == {"ready"}
    for batch in range(marked["first_batch"], marked["end_batch"]):
        world.roll(batch)
    assert set(world.balancer.state.values()) == {"ready"}
    assert world.hosts.tuned == set()


def test_a_host_that_cannot_be_restored_is_quarantined_and_the_rest_goes_on(world: World) -> None:
    for batch in (0, 1, 2):
        world.roll(batch)
    sick = world.plan.batches[2].hosts[0]
    world.hosts.errors[sick, "restore"] = "Read-only file system"
    marked = world.mark("rolling_back")
    for batch in range(marked["first_batch"], marked["end_batch"]):
        world.roll(batch)
    ended = world.mark("rolled_back")
    assert ended["quarantined"] == {sick: "Read-only file system"}
    assert world.hosts.tuned == {sick}
    assert world.balancer.state[sick] == "maint"
    assert world.hosts.not_ready == {sick}
    text = rollout_status(world.context, rollout=world.rollout)["text"]
    assert f"quarantined: {sick}: Read-only file system" in text


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


def test_a_look_waits_for_the_end_of_the_soak(world: World) -> None:
    assert compare_groups(world.context, world.rollout)["decision"] == "none"
    world.mark("soaking")
    assert compare_groups(world.context, world.rollout)["decision"] == "wait"
    early = compare_groups(world.context, world.rollout, now=True)
    assert (early["decision"], early["verdict"]) == ("wait", "")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda w: read_rollout(w.context, "nothing"), "rollout: there is no rollout 'nothing'"),
        (lambda w: w.step(begin_drain, 99), "has no batch 99"),
        (lambda w: w.mark("tuned"), "state: 'tuned' is none of"),
        (lambda w: rollout_status(w.context, state="x"), "state: 'x' is none of"),
        (lambda w: rollout_status(w.context, pop="x"), "there is no PoP 'x'"),
    ],
)
def test_wrong_parameters_are_named(world: World, call: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        call(world)
    assert says in str(caught.value)
    assert world.balancer.log == []


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


def test_a_workflow_takes_nothing_from_a_person(world: World) -> None:
    old = world.epoch
    taken = take_over_rollout(world.context, world.rollout, requested_by="ana")
    with pytest.raises(FencedError):
        take_over_rollout(world.context, world.rollout, epoch=old)
    assert take_over_rollout(world.context, world.rollout, epoch=taken["epoch"])["claimed"]


def test_a_rollback_keeps_what_an_operator_did_to_a_host_that_was_done(world: World) -> None:
    world.roll(0)
    (host,) = world.plan.batches[0].hosts
    world.balancer.state[host] = "maint"
    marked = world.mark("rolling_back")
    for batch in range(marked["first_batch"], marked["end_batch"]):
        world.roll(batch)
    assert world.balancer.state[host] == "maint"
    assert world.hosts.tuned == set()


@pytest.mark.slow
def test_a_rollback_of_a_sick_pop_goes_on_with_fewer_hosts_at_once(world: World) -> None:
    for batch in (0, 1, 2, 3):
        world.roll(batch)
    for host in world.plan.batches[3].hosts:
        world.balancer.state[host] = "maint"
    marked = world.mark("rolling_back")
    for batch in range(marked["first_batch"], marked["end_batch"]):
        assert len(read_rollout(world.context, world.rollout).batch(batch).hosts) == 1
        world.roll(batch)
    assert world.hosts.tuned == set()


def test_a_load_balancer_that_forgot_the_drain_is_told_again(world: World) -> None:
    (host,) = world.plan.batches[0].hosts
    world.step(begin_drain, 0)
    world.balancer.state[host] = "ready"
    assert world.step(check_drained, 0)["waiting"] == 1
    assert world.balancer.state[host] == "drain"
    assert world.step(check_drained, 0)["waiting"] == 0


def test_a_reboot_that_is_refused_fails_at_once(world: World) -> None:
    (host,) = world.plan.batches[0].hosts
    for step in (begin_drain, check_drained, apply_tuning):
        world.step(step, 0)
    world.hosts.errors[host, "reboot"] = "there is no program reboot"
    result = world.step(reboot_hosts, 0)
    assert (result["failed"], result["error"]) == ([host], f"{host}: there is no program reboot")


def test_a_host_whose_reboot_never_happened_is_taken_back_as_it_stands(world: World) -> None:
    for step in (begin_drain, check_drained, apply_tuning, reboot_hosts):
        world.step(step, 0)
    world.age(0)
    marked = world.mark("rolling_back")
    world.step(check_rebooted, marked["first_batch"])
    assert set(world.at(marked["first_batch"]).values()) == {"drained"}


def test_an_owner_that_died_between_epoch_and_record_does_not_wedge_the_soak(world: World) -> None:
    world.mark("soaking")
    world.context.claims.take("lab1", world.rollout, 60, after=world.epoch)
    assert compare_groups(world.context, world.rollout)["decision"] == "wait"


def test_what_is_quarantined_is_said_at_the_end(world: World) -> None:
    world.roll(0)
    (host,) = world.plan.batches[0].hosts
    world.hosts.errors[host, "restore"] = "Read-only file system"
    marked = world.mark("rolling_back")
    for batch in range(marked["first_batch"], marked["end_batch"]):
        world.roll(batch)
    ended = world.mark("rolled_back")
    said = f"rolled_back: every host is as it was but {host}, quarantined; why it was taken back: "
    assert ended["message"].startswith(said)


def test_a_rollback_called_again_visits_hosts_the_first_one_never_reached(world: World) -> None:
    for batch in (0, 1, 2):
        world.roll(batch)
    tuned = set(world.hosts.tuned)
    first = world.mark("rolling_back")
    assert world.hosts.tuned == tuned
    second = world.mark("rolling_back")
    assert second["first_batch"] == first["end_batch"]
    for batch in range(second["first_batch"], second["end_batch"]):
        world.roll(batch)
    assert world.hosts.tuned == set()
    assert set(world.balancer.state.values()) == {"ready"}


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
