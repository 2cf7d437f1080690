# SPDX-License-Identifier: Apache-2.0
"""The workflow ``tune_congestion``, conducted by the local runner; its steps run right here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.rollout.steps.stop_all import stop_all
from edgetune.wings.congestion.rounds.steps.find_tuned_pops import find_tuned_pops
from edgetune.wings.congestion.rounds.steps.push_configuration import push_configuration
from edgetune.wings.congestion.rounds.steps.resume_congestion import resume_congestion
from edgetune.wings.congestion.rounds.steps.roll_back_congestion import roll_back_congestion
from edgetune.wings.congestion.rounds.steps.select_prefixes import select_prefixes
from lab.runner import Execution, Pack
from lab.serve.rules import RuleBook
from tests.support import ROOT
from tests.support.conducting import Conductor
from tests.support.rounds_world import RoundsWorld, treating

STEPS: dict[str, Any] = {
    step.__name__: step for step in (find_tuned_pops, select_prefixes, push_configuration)
}


class Rounds(Conductor):
    """PoPs that are ``further`` answer as they are said to; ``taken`` are steps and their PoPs."""

    known = STEPS

    def __init__(self, world: RoundsWorld, home: Path) -> None:
        super().__init__(world, home)
        self.further: dict[str, tuple[str, Any]] = {}
        self.taken: list[tuple[str, str]] = []

    def _run(self, execution: Execution) -> tuple[str, Any]:
        name = execution.action.ref.partition(".")[2]
        if name not in STEPS:
            return super()._run(execution)
        pop = execution.parameters["pop"]
        self.taken.append((name, pop))
        if name != "find_tuned_pops" and pop in self.further:
            return self.further[pop]
        status, done = super()._run(execution)
        if name == "find_tuned_pops" and status == "succeeded":
            done["result"]["pops"] += self.further
        return status, done


@pytest.fixture
def conductor(tmp_path: Path) -> Any:
    world = treating(tmp_path)
    world.clock.wait(300)
    world.hosts.heard.clear()
    with world.at_work():
        yield Rounds(world, tmp_path)


def test_every_pop_has_its_round_and_what_is_left_is_pushed(conductor: Any) -> None:
    execution = conductor.run("tune_congestion", {"requested_by": "ana"})
    assert execution.status == "succeeded"
    assert conductor.taken == [
        ("find_tuned_pops", None),
        ("select_prefixes", "lab1"),
        ("push_configuration", "lab1"),
    ]
    message = execution.payload["message"]
    told = "40 prefixes measured, 20 prefixes chosen, 0 new, 0 let go"
    assert f"lab1: round 5880005: {told}; lab1: config" in message
    assert execution.payload["pops"] == ["lab1"]
    assert len(conductor.world.hosts.heard) == 4


DONE = {"result": {"pop": "lab2", "next": "", "error": "", "message": "lab2: told"}}
FAILED = {"result": {"error": "lab3: a store is away", "reason": "store"}}


def test_one_pop_keeps_no_other_from_its_round(conductor: Any) -> None:
    conductor.further = {
        "lab2": ("succeeded", DONE),
        "lab3": ("failed", FAILED),
        "lab4": ("failed", {"error": "killed {{ 1 }}", "result": "None"}),
        "lab5": ("failed", None),
    }
    execution = conductor.run("tune_congestion", {})
    assert execution.status == "failed"
    assert ("push_configuration", "lab1") in conductor.taken
    assert len(conductor.world.hosts.heard) == 4
    for text in ("lab1: configuration 1", "lab2: told", "lab3: a store is away"):
        assert text in execution.payload["message"]


def test_chat_is_told_what_was_taken_back_also_where_a_host_fails_to_do_so() -> None:
    rule = RuleBook(Pack(ROOT)).rule("post_congestion")
    told = {"message": "lab1: taken back: slower; e001: timed out", "channel": "edge"}
    payload: dict[str, Any] = {
        "action_ref": "edgetune.select_prefixes",
        "status": "failed",
        "result": {"result": {**told, "failed": ["e001"]}},
    }
    assert rule.matches(payload)
    assert rule.matches({**payload, "status": "succeeded"})
    assert not rule.matches({**payload, "result": {"result": {**told, "channel": ""}}})
    # It has no result where it was killed.
    assert not rule.matches({**payload, "result": {"error": "killed"}})


def test_chat_is_told_what_a_person_took_back_and_let_go_on(conductor: Any) -> None:
    rule, context = RuleBook(Pack(ROOT)).rule("post_congestion"), conductor.world.context
    context.config = replace(context.config, chat_channel="edge")
    again = resume_congestion(context, "lab1", requested_by="ana")
    told = {
        "roll_back_congestion": roll_back_congestion(context, "lab1", "calls", "ana"),
        "resume_congestion": resume_congestion(context, "lab1", "mended", "bea"),
    }
    for name, result in told.items():
        payload = {"action_ref": f"edgetune.{name}", "status": "succeeded"}
        assert rule.matches({**payload, "result": {"result": result}})
        # What changes nothing is no news.
        assert not rule.matches({**payload, "result": {"result": again}})
    assert "; asked for by ana; reason: calls; " in told["roll_back_congestion"]["message"]
    assert "tuned again, as bea says: mended; it was: calls" in told["resume_congestion"]["message"]


def test_a_stop_is_told(conductor: Any) -> None:
    stop_all(conductor.world.context, "ana", "smoke")
    execution = conductor.run("tune_congestion", {"pop": "lab1"})
    assert execution.status == "failed"
    assert "everything is stopped" in execution.payload["message"]
    assert conductor.world.hosts.heard == []


def test_a_pop_without_an_entry_is_named(conductor: Any) -> None:
    conductor.world.write_entry(None)
    execution = conductor.run("tune_congestion", {"pop": "lab1"})
    assert execution.status == "failed"
    assert "lab1 has no congestion: in the inventory" in execution.payload["message"]


def test_without_any_entry_it_does_nothing(conductor: Any) -> None:
    conductor.world.write_entry(None)
    execution = conductor.run("tune_congestion", {})
    assert execution.status == "succeeded"
    assert execution.payload["message"] == "no PoP has congestion: in the inventory"
