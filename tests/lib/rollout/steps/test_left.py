# SPDX-License-Identifier: Apache-2.0
"""What status says of rollouts whose workflow is gone: the hosts that are out, and the ways out."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from edgetune.documents.head import Head
from edgetune.errors import StoreError
from edgetune.report.text import left_text
from edgetune.rollout.claims import Claim
from edgetune.rollout.progress import out_of_service
from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.rollout_status import rollout_status
from tests.support.world import World, changing

pytestmark = pytest.mark.usefixtures("clock")


def left(world: World) -> list[str]:
    """Hosts that are out of service by the record."""
    return out_of_service(read_rollout(world.context, world.rollout).batches())


@pytest.mark.slow
def test_at_every_moment_the_record_names_the_hosts_that_are_out(tmp_path: Path) -> None:
    world, looks, missed = changing(tmp_path), [], []

    def look(moment: str) -> None:
        out = {name for name, state in world.balancer.state.items() if state != "ready"}
        looks.append(len(out))
        missed.extend((moment, name) for name in out - set(left(world)))

    world.moments.at = look
    world.roll_all(world.mark("changing"))
    world.moments.at = lambda moment: None
    assert left(world) == []
    world.moments.at = look
    world.roll_back()
    assert missed == []
    assert max(looks) >= 1
    assert left(world) == []


def test_hosts_that_a_rollback_has_not_reached_stay_named(tmp_path: Path) -> None:
    world = changing(tmp_path)
    drain, *_ = world.way(0)
    world.step(drain, 0)
    out = sorted(world.at(0))
    world.mark("rolling_back")
    assert sorted(left(world)) == out


def test_what_an_ended_execution_carried_on_has_no_owner_at_once(tmp_path: Path) -> None:
    world = changing(tmp_path)
    drain, *_ = world.way(0)
    world.step(drain, 0)
    assert rollout_status(world.context)["rollouts"][0]["orphan_notice"] == ""
    told = rollout_status(world.context, ended=["another", "run-1"])
    (row,) = told["rollouts"]
    assert (row["owner"], told["message"]) == ("run-1", "1 rollout, 1 without an owner")
    names = ", ".join(world.at(0))
    assert row["orphan_notice"].splitlines() == [
        f"WITHOUT AN OWNER: {world.rollout}",
        "  accept_queue on lab1: changing",
        f"  out of service by its record: {names}",
        f"  carry on:   st2 run edgetune.rollout_pop rollout={world.rollout}",
        f"  roll back:  st2 run edgetune.roll_back_pop rollout={world.rollout}",
    ]
    assert told["text"].splitlines() == [
        "lab1  accept_queue  NO OWNER; changing for 0s: batch 1 of 4, 1 host out",
        f"  carry on:   st2 run edgetune.rollout_pop rollout={world.rollout}",
        f"  roll back:  st2 run edgetune.roll_back_pop rollout={world.rollout}",
    ]
    in_full = rollout_status(world.context, world.rollout, ended=["run-1"])["text"]
    assert in_full.startswith(row["orphan_notice"])


def test_rollouts_without_an_owner_come_first(tmp_path: Path) -> None:
    world = changing(tmp_path)
    first = world.rollout
    world.roll_back()
    world.context.claims.release("lab1", Claim(first, world.epoch))
    time.sleep(0.01)
    world.begin(tmp_path)
    assert rollout_status(world.context)["ids"] == [first, world.rollout]
    world.context.claims.release("lab1", Claim(world.rollout, world.epoch))
    told = rollout_status(world.context)
    assert told["ids"] == [world.rollout, first]
    assert told["text"].startswith("lab1  accept_queue  NO OWNER; claimed for 0s\n")
    assert "out of service by its record: none" in told["rollouts"][0]["orphan_notice"]


def test_claims_that_are_away_hide_no_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = changing(tmp_path)

    def away(pops: list[str]) -> dict[str, float]:
        raise StoreError("Redis: is away")

    monkeypatch.setattr(world.context.claims, "expiries", away)
    told = rollout_status(world.context)
    assert told["ids"] == [world.rollout]
    assert told["text"].startswith("Which rollouts have an owner is not known: Redis: is away.")
    assert rollout_status(world.context, ended=["run-1"])["rollouts"][0]["orphan_notice"]


def test_a_rollback_is_carried_on_by_a_rollback() -> None:
    head = Head("r", "p", "t", "", "rolling_back", 1, "", "", 0.0)
    text = left_text(head, ["e000"])
    assert "carry on" not in text
    assert text.endswith("roll_back_pop rollout=r")


@pytest.mark.parametrize("hosts", [0, 1, 12, 5000])
def test_a_terminal_of_80_columns_and_24_lines_shows_all_of_it(hosts: int) -> None:
    name = "edge-{:05d}.pop-amsterdam-12.example.net"
    id = "ams12-20261122T123456-abcd"
    text = left_text(
        Head(id, "ams12", "accept_queue", "", "changing", 1, "", "", 0.0),
        [name.format(number) for number in range(hosts)],
    )
    lines = text.splitlines()
    assert len(lines) <= 22
    assert max(map(len, lines)) < 80
    assert len(re.findall(r"rollout=ams12-20261122T123456-abcd$", text, re.MULTILINE)) == 2


def test_the_local_runner_names_its_own_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGETUNE_RUN", "edgetune run ")
    head = Head("r", "p", "t", "", "changing", 1, "", "", 0.0)
    assert "carry on:   edgetune run rollout_pop rollout=r" in left_text(head, None)
    assert "not known, its record cannot be read" in left_text(head, None)
