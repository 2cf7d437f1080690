# SPDX-License-Identifier: Apache-2.0
"""Nothing is done to a machine that inventory, load balancer and SSH do not all mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.errors import RefusedError
from edgetune.rollout import readiness
from edgetune.rollout.lease import as_owner
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.undrain_hosts import undrain_hosts
from tests.support.builders import inventory_document
from tests.support.world import EmptyWorld, World, changing


@pytest.fixture
def world(tmp_path: Path) -> World:
    return changing(tmp_path / "world")


def _hosts(world: EmptyWorld, batch: int = 0) -> list[str]:
    return list(world.batch(batch).hosts)


def _exchange(world: EmptyWorld, one: str, other: str) -> None:
    """The SSH addresses of two hosts, and nothing else."""
    world.hosts.behind = {one: other, other: one}


def _untouched(world: EmptyWorld) -> bool:
    out = [name for name, state in world.balancer.state.items() if state != "ready"]
    return not out and not world.hosts.not_ready and not world.hosts.tuned


def _vouched(world: EmptyWorld) -> None:
    """A PoP behind NAT, whose rollout was planned as such."""
    document = inventory_document()
    for number, host in enumerate(document["pops"]["lab1"]["hosts"].values(), 1):
        host["server_address"] = f"203.0.113.{number}"
        world.balancer.addresses[f"e{number - 1:03d}"] = host["server_address"]
    world.change_inventory(document)


def _vouched_changing(folder: Path) -> tuple[EmptyWorld, int]:
    """A rollout of such a PoP that is about to change its first of so many batches."""
    world = EmptyWorld(folder)
    _vouched(world)
    made = plan_rollout(world.context, pop="lab1", tuning="accept_queue", seed=7)
    world.begin_planned(made["plan"])
    for state in ("baseline", "changing"):
        world.mark(state)
    return world, int(made["batches"])


def test_exchanged_ssh_addresses_refuse_the_plan(tmp_path: Path) -> None:
    world = EmptyWorld(tmp_path)
    _exchange(world, "e001", "e005")
    with pytest.raises(RefusedError) as caught:
        plan_rollout(world.context, pop="lab1", tuning="accept_queue")
    assert "e001: the load balancer sends requests for e001 to 127.0.9.2, which e005 has" in str(
        caught.value
    )
    assert "e005: the load balancer sends requests for e005 to 127.0.9.6" in str(caught.value)
    assert (world.balancer.log, world.hosts.changing()) == ([], [])


def test_the_plan_holds_what_proves_each_host(tmp_path: Path) -> None:
    world = EmptyWorld(tmp_path)
    made = plan_rollout(world.context, pop="lab1", tuning="accept_queue")
    assert (
        "identity    8 hosts have the address that the load balancer sends requests to"
        in (made["text"])
    )
    _vouched(world)
    text = plan_rollout(world.context, pop="lab1", tuning="accept_queue")["text"]
    assert "the inventory alone vouches for e000 (203.0.113.1), e001 (203.0.113.2)" in text


def test_addresses_that_are_exchanged_after_the_plan_stop_the_batch(world: World) -> None:
    (host,) = _hosts(world)
    other = next(name for name in world.hosts.boot if name != host)
    _exchange(world, host, other)
    with pytest.raises(RefusedError, match=f"{host}: the load balancer sends requests for {host}"):
        world.step(begin_drain, 0)
    assert _untouched(world) and world.hosts.changing() == []
    assert "the load balancer sends" in str(world.batch(0).hosts[host].error)
    assert world.roll_back()["state"] == "rolled_back"


def test_exchanged_addresses_stop_a_batch_that_drains_nothing(tmp_path: Path) -> None:
    world = changing(tmp_path / "live", disruption="live")
    (host,) = _hosts(world)
    _exchange(world, host, next(name for name in world.hosts.boot if name != host))
    with pytest.raises(RefusedError, match=f"{host}: the load balancer sends requests for {host}"):
        world.step(begin_drain, 0)
    assert _untouched(world) and world.hosts.changing() == []


def test_a_silent_host_is_not_drained(world: World) -> None:
    (host,) = _hosts(world)
    world.hosts.unreachable.add(host)
    with pytest.raises(RefusedError, match=f"{host}: timed out"):
        world.step(begin_drain, 0)
    assert _untouched(world)


def test_a_machine_that_serves_says_not_ready_for_no_other(world: World) -> None:
    """The addresses are exchanged between the drain and the first request to the host."""
    (host,) = _hosts(world)
    world.step(begin_drain, 0)
    other = next(name for name in world.hosts.boot if name != host)
    world.hosts.lies = lambda name, reply: _never_told(name == other, reply)
    _exchange(world, host, other)
    result = world.step(check_drained, 0)
    has, lacks = (world.hosts.addresses[name] for name in (other, host))
    assert result["error"] == f"{host}: this machine has {has}, and not {lacks}"
    assert _untouched(world) and world.at(0) == {host: "planned"}
    assert world.balancer.log == [(host, "drain"), (host, "ready")]
    assert world.roll_back()["state"] == "rolled_back"
    assert _untouched(world)


def test_a_host_that_says_not_ready_is_not_put_back_when_another_answers(world: World) -> None:
    (host,) = _hosts(world)
    world.balancer.heeds_marker = False
    world.step(begin_drain, 0)
    world.step(check_drained, 0)
    assert world.hosts.not_ready == {host}
    _exchange(world, host, next(name for name in world.hosts.boot if name != host))
    result = world.step(check_drained, 0)
    assert result["failed"] == [host] and "and not 127.0.9." in result["error"]
    assert world.balancer.state[host] == "drain"


def _never_told(serves: bool, reply: Any) -> Any:
    assert not (serves and reply["verb"] == "ready"), "a machine in service was told"
    return reply


def test_a_machine_that_serves_and_is_told_instead_is_told_to_serve_again(
    tmp_path: Path,
) -> None:
    """A host behind NAT does not know the address that it is reached by."""
    world, _ = _vouched_changing(tmp_path)
    (host,) = _hosts(world)
    world.step(begin_drain, 0)
    other = next(name for name in world.hosts.boot if name != host)
    _exchange(world, host, other)
    result = world.step(check_drained, 0)
    assert result["failed"] == [host]
    assert f"the load balancer's check of {other} fails, which passed before" in result["error"]
    assert _untouched(world)
    assert world.balancer.log == [(host, "drain"), (host, "ready")]
    assert world.at(0) == {host: "planned"}


@pytest.mark.parametrize("step", [apply_tuning, reboot_hosts])
def test_a_machine_that_was_not_drained_refuses_what_disturbs(world: World, step: Any) -> None:
    """The last of the proofs: the inventory may change between any two steps of a batch."""
    (host,) = _hosts(world)
    world.roll(0, until=step)
    other = next(name for name in world.hosts.boot if name != host)
    _exchange(world, host, other)
    assert world.step(step, 0)["failed"] == [host]
    assert "not drained" in str(world.batch(0).hosts[host].error)
    world.hosts.reboot()
    assert other not in world.hosts.tuned
    assert world.hosts.boot[other] == f"{other}-boot-1"


def test_a_check_that_never_fails_proves_nothing(world: World) -> None:
    (host,) = _hosts(world)
    world.balancer.heeds_marker = False
    world.step(begin_drain, 0)
    result = world.step(check_drained, 0)
    assert (result["waiting"], result["failed"]) == (1, [])
    assert world.balancer.state[host] == "drain"
    opened = as_owner(world.context, world.rollout)
    work = opened.batch(0)
    work.hosts[host].told_at -= 60
    opened.save_batch(work)
    result = world.step(check_drained, 0)
    assert result["failed"] == [host]
    assert "its check by the load balancer did not fail within 1s" in result["error"]
    assert _untouched(world)


def _draining(tmp_path: Path, count: int) -> tuple[World, int, list[str]]:
    """A batch of several hosts that is being drained."""
    world = changing(tmp_path / "many")
    batches = world.plan.batches
    batch = next(n for n, b in enumerate(batches) if b.batch_type == "change" and len(b.hosts) > 1)
    names = _hosts(world, batch)
    assert len(names) >= count
    world.step(begin_drain, batch)
    return world, batch, names


def test_a_failure_before_any_host_was_told_says_nothing_of_it(tmp_path: Path) -> None:
    """Long sessions keep one host; meanwhile some other server of the PoP falls ill."""
    world, batch, names = _draining(tmp_path, 2)
    world.balancer.sessions[names[1]] = 3
    world.step(check_drained, batch)
    assert world.at(batch)[names[0]] == "drained"
    other = next(name for name in world.hosts.boot if name not in names)
    world.balancer.up[other] = False
    result = world.step(check_drained, batch)
    assert (result["failed"], result["waiting"]) == ([], 1)
    assert world.balancer.state[names[1]] == "drain"


def test_a_failure_since_the_first_was_told_is_not_forgotten(tmp_path: Path) -> None:
    world, batch, names = _draining(tmp_path, 2)
    world.balancer.sessions[names[1]] = 3
    other = next(name for name in world.hosts.boot if name not in names)
    world.balancer.heeds_marker = False
    assert world.step(check_drained, batch)["failed"] == []
    world.balancer.heeds_marker = True
    world.balancer.up[other] = False
    world.balancer.sessions[names[1]] = 0
    result = world.step(check_drained, batch)
    assert names[0] in result["failed"]
    assert f"check of {other} fails" in result["error"]


def test_nothing_is_told_to_a_stranger_in_a_rollback(world: World) -> None:
    """Its owner died while the host was draining, and its address leads elsewhere since."""
    world.roll(0)
    (host,) = _hosts(world)
    marked = world.mark("rolling_back")
    batch = next(
        n for n in range(marked["first_batch"], marked["end_batch"]) if host in world.batch(n).hosts
    )
    world.step(begin_drain, batch)
    assert world.at(batch)[host] == "draining"
    other = next(name for name in world.hosts.boot if name not in world.hosts.tuned)
    _exchange(world, host, other)
    world.step(check_drained, batch)
    world.step(undrain_hosts, batch)
    assert list(world.head.quarantined) == [host]
    assert world.hosts.not_ready == set()


def test_without_checks_the_address_has_to_do(world: World, tmp_path: Path) -> None:
    (host,) = _hosts(world)
    document = inventory_document()
    document["pops"]["lab1"]["load_balancer"]["checks"] = "none"
    world.change_inventory(document)
    world.balancer.heeds_marker = False
    world.step(begin_drain, 0)
    assert world.step(check_drained, 0)["waiting"] == 0
    assert world.at(0) == {host: "drained"}


def test_hosts_that_the_inventory_vouches_for_are_told_one_by_one(tmp_path: Path) -> None:
    world, batches = _vouched_changing(tmp_path)
    numbers = [n for n in range(batches) if len(world.batch(n).hosts) == 3]
    batch = numbers[0]
    names = _hosts(world, batch)
    world.step(begin_drain, batch)
    for done in range(1, 4):
        result = world.step(check_drained, batch)
        assert list(world.at(batch).values()).count("drained") == done
        assert result["waiting"] == 3 - done
    assert world.hosts.not_ready == set(names)


def test_a_stranger_in_a_rollback_is_quarantined_alone(world: World) -> None:
    world.roll(0)
    (host,) = _hosts(world)
    world.roll(2)
    other = next(name for name in world.hosts.boot if name not in world.hosts.tuned)
    _exchange(world, host, other)
    world.roll_all(world.mark("rolling_back"))
    assert list(world.head.quarantined) == [host]
    assert "the load balancer sends" in world.head.quarantined[host].reason
    assert world.hosts.tuned == {host}
    assert other not in world.hosts.not_ready


def test_a_batch_that_died_while_it_was_told_is_proven_by_the_next_step(world: World) -> None:
    (host,) = _hosts(world)
    world.step(begin_drain, 0)
    opened = as_owner(world.context, world.rollout)
    work = opened.batch(0)
    readiness.proven_by_effect(opened, work, world.balancer, [host])
    assert world.hosts.not_ready == {host}
    assert world.step(check_drained, 0)["waiting"] == 0
    assert world.at(0) == {host: "drained"}
