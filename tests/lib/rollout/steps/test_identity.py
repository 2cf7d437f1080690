# SPDX-License-Identifier: Apache-2.0
"""Nothing is done to a machine that inventory, load balancer and SSH do not all mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.errors import RefusedError
from edgetune.rollout import readiness
from edgetune.rollout.lease import as_owner
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.plan_rollout import plan_rollout
from tests.support.builders import inventory_document
from tests.support.scenarios import Scenario, begun, scenarios
from tests.support.virtual_clock import VirtualClock
from tests.support.world import EmptyWorld, World, changing


@pytest.fixture
def world(tmp_path: Path) -> World:
    return changing(tmp_path / "world")


class AddressMoves(Scenario):
    """Moves of addresses that lead elsewhere."""

    def exchange(self, names: list[str]) -> None:
        _exchange(self.world, *names)

    def never_told(self, name: str) -> None:
        def lies(told: str, reply: Any) -> Any:
            assert (told, reply["verb"]) != (name, "ready"), "a machine in service was told"
            return reply

        self.world.hosts.lies = lies

    def checks(self, how: str) -> None:
        document = inventory_document()
        document["pops"]["lab1"]["load_balancer"]["checks"] = how
        self.world.change_inventory(document)


@pytest.mark.parametrize("case", scenarios(__file__))
def test_nothing_is_done_to_another_machine(case: Any, tmp_path: Path, clock: VirtualClock) -> None:
    AddressMoves(begun(case[0], tmp_path), clock).play(case)


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


def test_a_batch_that_died_while_it_was_told_is_proven_by_the_next_step(world: World) -> None:
    (host,) = _hosts(world)
    world.step(begin_drain, 0)
    opened = as_owner(world.context, world.rollout)
    work = opened.batch(0)
    readiness.proven_by_effect(opened, work, world.balancer, [host])
    assert world.hosts.not_ready == {host}
    assert world.step(check_drained, 0)["waiting"] == 0
    assert world.at(0) == {host: "drained"}
