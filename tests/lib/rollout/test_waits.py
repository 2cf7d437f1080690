# SPDX-License-Identifier: Apache-2.0
"""A batch that may not begin: the status says since when, why, and until what."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from edgetune.clock import wall
from edgetune.rollout.lease import as_owner
from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.report_rollout import _waits
from tests.support.virtual_clock import VirtualClock
from tests.support.world import World, changing

_LINE = re.compile(r"  waits since (\S+ \S+Z): (.*)")
_CALM = "until it carries at most 2 times its usual load"
_ROOM = "until more than 4 hosts are in service"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A rollback is about to visit its first host."""
    made = changing(tmp_path)
    made.roll_all({"first_batch": 0, "end_batch": 1})
    made.mark("rolling_back")
    return made


def told(world: World) -> list[tuple[str, str]]:
    """Since when it waits, and why, as a person reads it."""
    status = world.run("rollout_status")
    found = _LINE.findall(status["text"])
    (row,) = status["rollouts"]
    assert row["waits"] == "".join(f"waits since {since}: {why}" for since, why in found)
    return found


def drained(world: World) -> Any:
    return world.step("drain_hosts", world.head.first_restore)


def surge(world: World, monkeypatch: pytest.MonkeyPatch, times: float) -> None:
    why = f"lab1 carries {times} times its usual load; nothing is drained now"
    monkeypatch.setattr(
        "edgetune.rollout.steps.drain_hosts.surge_of", lambda opened: why if times > 2 else ""
    )


def test_a_rollback_without_room_says_so_until_there_is_some(world: World) -> None:
    (host,) = world.at(world.head.first_restore)
    assert told(world) == []
    for name in world.balancer.state:
        world.balancer.state[name] = "ready" if name == host else "maint"
    assert drained(world)["waiting"] == 1
    ((_, why),) = told(world)
    assert why == f"lab1: draining {host} would leave 0 hosts in service, 4 must stay; {_ROOM}"
    assert _waits(read_rollout(world.context, world.rollout)).endswith(f": {why}")
    for name in world.balancer.state:
        world.balancer.state[name] = "ready"
    assert drained(world)["waiting"] == 0
    assert told(world) == []
    assert _waits(read_rollout(world.context, world.rollout)) == ""


def test_a_rollback_in_a_surge_tells_its_latest_load_and_since_when_each_cause_holds(
    world: World, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds, times in ((0, 2.4), (60, 3.1)):
        clock.set_to(1_000_000_000.0 + seconds)
        surge(world, monkeypatch, times)
        assert drained(world)["waiting"] == 1
    said = f"lab1 carries 3.1 times its usual load; nothing is drained now; {_CALM}"
    assert told(world) == [("2001-09-09 01:46:40Z", said)]
    surge(world, monkeypatch, 1.0)
    (host,) = world.at(world.head.first_restore)
    world.balancer.state = {**dict.fromkeys(world.balancer.state, "maint"), host: "ready"}
    drained(world)
    ((since, why),) = told(world)
    assert since == "2001-09-09 01:47:40Z"
    assert why.endswith(_ROOM)


def test_a_batch_waits_for_the_end_of_a_freeze_or_for_who_paused_or_of_its_state(
    tmp_path: Path,
) -> None:
    world = changing(tmp_path)
    world.run("pause_pop", "lab1", reason="a final", requested_by="ana")
    world.step("drain_hosts", 0)
    said = "lab1 is paused (asked, by ana: a final); no further batch begins"
    assert told(world)[0][1] == f"{said}; until st2 run edgetune.resume_pop pop=lab1 lets it go on"
    world.set_head(freezes=[{"name": "final", "start": 0.0, "end": wall() + 3600}])
    world.step("drain_hosts", 0)
    says = r"lab1 is frozen by final until \S+ \S+Z; no further batch begins"
    assert re.fullmatch(says, told(world)[0][1])
    world.mark("rolling_back")
    assert told(world) == []


def test_a_batch_that_cannot_be_read_hides_no_status(world: World) -> None:
    world.context.store.put(f"edgetune.batch.{world.rollout}.{world.head.first_restore}", "{")
    text = world.status()
    assert "NOT KNOWN: edgetune.batch." in text
    assert "rolling back for " in text
    in_full = world.status(rollout=world.rollout)
    assert "what it waits for is not known: edgetune.batch." in in_full
    assert "rolling_back" in in_full


def test_a_batch_of_the_version_before_waits_for_nothing(world: World) -> None:
    number = world.head.first_restore
    opened = as_owner(world.context, world.rollout)
    opened.save_batch(opened.batch(number))
    key = f"edgetune.batch.{world.rollout}.{number}"
    document = json.loads(world.context.store.get(key) or "")
    del document["wait"]
    world.context.store.put(key, json.dumps({**document, "schema": 2}))
    assert (world.batch(number).wait, told(world)) == (None, [])
