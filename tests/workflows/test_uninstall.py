# SPDX-License-Identifier: Apache-2.0
"""The workflows ``uninstall_agent`` and ``retire_tuning``, conducted on a PoP in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.action_case import complete
from tests.support.conducting import Conductor
from tests.support.world import World

# Whole workflows are conducted.
pytestmark = pytest.mark.slow


OF_LAB1 = {"pop": "lab1", "requested_by": "ana"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return complete(tmp_path)


def test_what_stands_is_taken_back_first_as_asked(world: World, tmp_path: Path) -> None:
    conductor = Conductor(world, tmp_path)
    status, told = conductor.output("uninstall_agent", **OF_LAB1)
    assert status == "failed"
    assert f"there stand on lab1: accept_queue by {world.rollout}" in told["message"]
    status, told = conductor.output("uninstall_agent", **OF_LAB1, dry_run=True, take_back=True)
    assert (status, told["done"], told["rollouts"]) == ("succeeded", [], [])
    assert "after taking back what stands" in told["message"]
    assert world.hosts.tuned and not world.hosts.left
    status, told = conductor.output(
        "uninstall_agent", **OF_LAB1, take_back=True, reason="moving out"
    )
    assert (status, told["rollouts"]) == ("succeeded", [world.rollout])
    assert told["done"] == sorted(world.hosts.left) == sorted(world.balancer.state)
    assert world.hosts.tuned == set()
    assert world.head.state == "rolled_back"
    assert "uninstalled: moving out" in [entry.reason for entry in world.head.history][-2]


def test_what_is_handed_over_stays_and_its_hosts_are_left(world: World, tmp_path: Path) -> None:
    conductor = Conductor(world, tmp_path)
    own = {"tuning": "accept_queue", "hand_over": True}
    status, told = conductor.output("retire_tuning", **OF_LAB1, **own, dry_run=True)
    assert (status, told["rollouts"], len(told["files"])) == ("succeeded", [], 8)
    assert world.head.state == "complete" and len(world.hosts.tuned) == 8
    status, told = conductor.output("retire_tuning", **OF_LAB1, **own, reason="moving out")
    assert (status, told["rollouts"]) == ("succeeded", [world.rollout])
    assert told["message"] == "accept_queue is handed over by ana on 8 of 8 hosts of lab1"
    assert (world.head.state, world.hosts.tuned) == ("handed_over", set())
    status, told = conductor.output("uninstall_agent", **OF_LAB1)
    assert (status, len(told["done"])) == ("succeeded", 8)
    status, told = conductor.output("retire_tuning", **OF_LAB1, tuning="accept_queue")
    assert status == "failed" and "was handed over at" in told["message"]


def test_a_dry_run_of_retiring_takes_nothing_back(world: World, tmp_path: Path) -> None:
    status, told = Conductor(world, tmp_path).output(
        "retire_tuning", **OF_LAB1, tuning="accept_queue", dry_run=True
    )
    stands = f"accept_queue stands on lab1 by {world.rollout}, and would be taken back"
    assert (status, told["message"], told["rollouts"]) == ("succeeded", stands, [])
    assert world.head.state == "complete" and len(world.hosts.tuned) == 8
