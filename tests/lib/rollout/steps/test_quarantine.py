# SPDX-License-Identifier: Apache-2.0
"""Hosts that wait for a person, machines that were replaced, and plans on such PoPs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from edgetune import RECORD_SCHEMA
from edgetune.errors import InputError
from edgetune.rollout import soak
from edgetune.rollout.lease import Rollout
from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.adopt_host import adopt_host
from edgetune.rollout.steps.plan_rollout import plan_rollout
from tests.support.builders import inventory_document, write_yaml
from tests.support.scenarios import Scenario, scenarios
from tests.support.world import World, changing


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One host is changed, one was rebooted only."""
    made = changing(tmp_path)
    made.roll_all({"first_batch": 0, "end_batch": 2})
    return made


def _quarantine(world: World) -> str:
    """Take the rollout back with one host that cannot be; it is named."""
    (host,) = world.at(0)
    world.hosts.errors[host, "restore"] = "Read-only file system"
    world.roll_back()
    world.hosts.errors.clear()
    return str(host)


def _opened(world: World) -> Rollout:
    return read_rollout(world.context, world.rollout)


def _replaced(world: World, host: str) -> None:
    world.hosts.tuned.discard(host)
    world.hosts.not_ready.discard(host)
    world.hosts.boot[host] = "new"
    world.hosts.epochs.pop(host, None)


class ReplacedMoves(Scenario):
    def replaced(self, host: str) -> None:
        _replaced(self.world, host)

    @property
    def planned(self) -> int:
        """How many hosts the newest plan compares."""
        return len(self.result["test"] + self.result["control"])


@pytest.mark.parametrize("case", scenarios(__file__))
def test_only_a_new_machine_is_adopted(case: Any, world: World) -> None:
    ReplacedMoves(world).play(case)


def test_adopted_hosts_are_left_out_of_the_comparison_and_of_the_rollback(world: World) -> None:
    world.roll_all({"first_batch": 2, "end_batch": 4})
    world.mark("soaking")
    (host,) = world.at(0)
    _replaced(world, host)
    adopt_host(world.context, world.rollout, host)
    world.epoch = world.head.epoch
    tuned = set(world.at(2))
    compared = soak._compared(_opened(world))["lab"]
    assert set(compared.test) == tuned
    assert len(compared.control) == 4
    asked = len(world.hosts.asked)
    assert world.roll_back()["quarantined"] == {}
    restored = {name for name, verb, _ in world.hosts.asked[asked:] if verb == "restore"}
    assert restored == tuned
    assert world.hosts.reboots(host) == 0


def test_hosts_outside_of_the_rollout_are_named(tmp_path: Path) -> None:
    world = World(tmp_path, hosts=7)
    # An eighth host came to the PoP since.
    write_yaml(tmp_path / "inventory.yaml", inventory_document())
    del world.context.__dict__["inventory"]
    with pytest.raises(InputError, match=f"host: e007 is no host of rollout {world.rollout}"):
        adopt_host(world.context, world.rollout, "e007")
    with pytest.raises(InputError, match="e099"):
        adopt_host(world.context, world.rollout, "e099")


def _plan(world: World, *exclude: str) -> dict[str, Any]:
    return plan_rollout(
        world.context, pop="lab1", tuning="accept_queue", exclude=exclude, alpha_benefit=0.1
    )


def test_a_quarantine_of_another_pop_is_none_of_ours(world: World) -> None:
    _replaced(world, _quarantine(world))
    opened = _opened(world)
    elsewhere = replace(opened.head, id="lab2-20261121T052018-503b", pop="lab2")
    document = {"schema": RECORD_SCHEMA, **asdict(elsewhere)}
    world.context.store.put(f"edgetune.rollout.{elsewhere.id}", json.dumps(document))
    here = {"schema": RECORD_SCHEMA, **asdict(replace(opened.head, quarantined={}))}
    world.context.store.put(f"edgetune.rollout.{world.rollout}", json.dumps(here))
    world.balancer.forget()
    assert len(_plan(world)["test"]) == 4
