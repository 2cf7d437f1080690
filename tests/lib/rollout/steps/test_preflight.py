# SPDX-License-Identifier: Apache-2.0
"""What a dry run and the doctor look at before anything is begun, and what they say of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgetune.base.documents.options import Options
from edgetune.base.errors import RefusedError
from edgetune.report.findings import WIDTH
from edgetune.rollout.evidence.sampling import bucket_counters, most_bytes
from edgetune.rollout.planning.make_plan import make_for
from edgetune.rollout.steps.stop_all import stop_all
from tests.support import ROOT
from tests.support.builders import LOGGED, inventory_document, write_yaml
from tests.support.virtual_clock import VirtualClock
from tests.support.world import EmptyWorld, World, changing


@pytest.fixture
def world(tmp_path: Path) -> EmptyWorld:
    return EmptyWorld(tmp_path)


@pytest.mark.parametrize(("ahead", "is_wrong"), [(-5, False), (65, False), (80, True), (-20, True)])
def test_a_clock_is_wrong_only_outside_of_question_and_answer(
    world: EmptyWorld, clock: VirtualClock, ahead: float, is_wrong: bool
) -> None:
    """Hosts are asked in turn: the last of many may answer a minute after the first question."""
    facts, now = world.hosts._facts, clock.wall()

    def in_turn(name: str, request: Any) -> dict[str, Any]:
        clock.wait(60 / len(world.balancer.state))
        return {**facts(name, request), "time": now + (ahead if name == "e005" else 0)}

    world.hosts._facts = in_turn  # type: ignore[method-assign]
    assert (
        "e005: its clock is" in world.run("plan_rollout", "lab1", "accept_queue")["text"]
    ) is is_wrong


def test_a_campaign_sees_what_refuses_a_pop(world: EmptyWorld) -> None:
    world.hosts.health = {"e003": "answers 404 Not Found"}
    with pytest.raises(RefusedError, match="e003: .* answers 404 Not Found"):
        make_for(world.context, "lab1", "accept_queue", Options(seed=1))


def _all_of(world: EmptyWorld) -> Mapping[str, list[Any]]:
    """Everything that is kept, byte for byte."""
    path = str(world.config["records"]).partition("///")[2]
    with sqlite3.connect(path) as db:
        tables = ("records", "claims", "epochs", "samples")
        return {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in tables}  # noqa: S608


def test_the_doctor_changes_nothing_whatever_it_finds(tmp_path: Path) -> None:
    world = changing(tmp_path / "w")
    world.roll(0)
    stop_all(world.context, requested_by="ana")
    world.hosts.health = {"e003": "answers 404 Not Found"}
    world.hosts.unreachable = {"e004"}
    world.balancer.state["e005"] = "maint"
    moments, log = len(world.moments.seen), list(world.balancer.log)
    changes, kept = world.hosts.changing(), _all_of(world)
    for tuning in ("", "accept_queue"):
        assert world.run("doctor_pop", "lab1", tuning)["failed"]
    assert _all_of(world) == kept
    assert (world.hosts.changing(), world.balancer.log) == (changes, log)
    assert len(world.moments.seen) == moments


def _most(world: EmptyWorld) -> int:
    return most_bytes(world.context, [world.context.inventory.pop("lab1")])


def test_a_rollout_that_is_sampled_faster_takes_more_memory(tmp_path: Path) -> None:
    world = World(tmp_path, interval=60)
    usual = _most(world)
    (tmp_path / "other").mkdir()
    faster = _most(World(tmp_path / "other", interval=10))
    assert 6.9 < faster / usual < 7.1


def test_buckets_of_an_access_log_are_counted(tmp_path: Path) -> None:
    """A histogram is a hundred columns and more where a counter is one."""
    world = World(tmp_path, interval=60)
    usual = _most(world)
    document = inventory_document()
    document["pops"]["lab1"]["metrics"] = LOGGED
    world.change_inventory(document)
    pop, catalogue = world.context.inventory.pop("lab1"), world.context.catalogue
    buckets = bucket_counters(pop, catalogue)
    assert buckets[0] == "request_ms:0" and 250 < len(buckets) < 350
    assert 4 * usual < _most(world) < 8 * usual
    document["pops"]["lab1"]["metrics"] = {**LOGGED, "log_format": "{status} "}
    world.change_inventory(document)
    assert _most(world) == usual


def test_a_plan_that_is_damaged_hides_no_bound(tmp_path: Path) -> None:
    world = World(tmp_path, interval=10)
    faster = _most(world)
    world.context.store.put(f"edgetune.plan.{world.plan.digest}", "{")
    assert 0 < _most(world) < faster


def test_the_doctor_writes_lines_that_fit_a_terminal(world: EmptyWorld) -> None:
    world.hosts.health = {
        name: f"answers {400 + number} {'so odd ' * number}"
        for number, name in enumerate(world.balancer.state)
    }
    world.balancer.refusal = "x" * 300
    lines = world.run("doctor_pop", "lab1")["text"].splitlines()
    short = [line for line in lines if "xxx" not in line]
    assert len(short) > 16 and max(map(len, short)) <= WIDTH < 80


def test_what_a_host_says_begins_no_line_of_the_doctor(world: EmptyWorld) -> None:
    world.hosts.health = {"e003": "answers 404\n  ok      claim  all is well " + "FAILED " * 40}
    lines = world.run("doctor_pop", "lab1")["text"].splitlines()
    assert sum(line.startswith("  ok      claim") for line in lines) == 1
    assert [line for line in lines if line.split()[0] == "FAILED"] == [
        line for line in lines if line.startswith("  FAILED  health")
    ]


def test_a_missing_check_of_health_is_told_in_every_plan(tmp_path: Path) -> None:
    (tmp_path / "tunings").mkdir()
    kept = yaml.safe_load((ROOT / "tunings/accept_queue.yaml").read_text(encoding="utf-8"))
    guards = [{**guard, "optional": True} for guard in kept["guards"]]
    write_yaml(tmp_path / "tunings/accept_queue.yaml", {**kept, "guards": guards})
    world = EmptyWorld(tmp_path, tunings=[str(tmp_path / "tunings")])
    document = inventory_document()
    document["pops"]["lab1"]["health"] = ""
    world.change_inventory(document)
    text = world.run("plan_rollout", "lab1", "accept_queue")["text"]
    assert "has no health check: a sick host would pass" in text
