# SPDX-License-Identifier: Apache-2.0
"""Who did it: every rule gives its name, workflows hand it on, and no record names the system user
as which StackStorm runs what rules begin."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from edgetune.fleet.export.state import read_state
from lab.runner import Execution
from lab.runner.templates import render_together
from tests.support import ROOT
from tests.support.conducting import STEPS, Conductor
from tests.support.metadata.values import documents
from tests.support.scenarios import Scenario
from tests.support.soaking import Soaking
from tests.support.virtual_clock import VirtualClock
from tests.support.world import World, step_named

SYSTEM = "stanley"
ACTIONS = documents(ROOT, "actions")
RULES = documents(ROOT, "rules")
FLOWS = documents(ROOT, "workflows")
SIGNED = [name for name, own in ACTIONS.items() if "requested_by" in own["parameters"]]
SIGNING = sorted(n for n, rule in RULES.items() if rule["action"]["ref"].split(".")[1] in SIGNED)


@pytest.mark.parametrize("name", SIGNING)
def test_a_rule_gives_its_name(name: str) -> None:
    given = RULES[name]["action"]["parameters"]
    assert given.get("requested_by") == f"rule edgetune.{name}"


def test_rules_that_change_something_give_a_name() -> None:
    """Those without one read, or say something in chat."""
    silent = {RULES[name]["action"]["ref"] for name in RULES.keys() - {*SIGNING}}
    reads = {"post", "export_metrics", "sample_running", "watch_drift"}
    assert silent == {f"edgetune.{name}" for name in reads}


@pytest.mark.parametrize("name", FLOWS)
def test_a_workflow_hands_on_who_asked_for_it(name: str) -> None:
    """A task has no rule in its context: what it does not hand on would be the system user's."""
    asked = r"(?:recovery by \w+ of )?<% ctx\(requested_by\) %>"
    for task, own in FLOWS[name]["tasks"].items():
        parameters = ACTIONS.get(own.get("action", "").partition(".")[2], {}).get("parameters", {})
        if "{{" in str(parameters.get("requested_by", {}).get("default", "")):
            assert re.fullmatch(asked, own["input"].get("requested_by", "")), task


@pytest.mark.parametrize(
    ("context", "by"),
    [
        ({"user": "ana"}, "ana"),
        ({"user": "bot", "api_user": "ana"}, "ana"),
        ({"user": SYSTEM, "rule": {"id": "1", "name": "of_a_site"}}, "rule of_a_site"),
    ],
)
def test_without_a_name_the_context_gives_one(context: dict[str, Any], by: str) -> None:
    """So a rule of a site that gives none is no system user either."""
    for name in SIGNED:
        parameter = ACTIONS[name]["parameters"]["requested_by"]
        if "{{" in parameter["default"]:
            told = render_together({"by": parameter["default"]}, {"action_context": context})
            assert told["by"] == by, name


MORE = ("find_orphans", "rollout_status", "compare_groups", "pause_pop", "resume_pop")


class BySystem(Conductor):
    """What rules begin, as StackStorm begins it."""

    known = {**STEPS, **{name: step_named(name) for name in MORE}}

    def begin(self, rule: str, **trigger: Any) -> Execution:
        """What a rule begins; ``trigger`` has the values of its templates."""
        given = {**RULES[rule]["action"]["parameters"], **trigger}
        context = {"user": SYSTEM, "rule": {"name": rule, "id": "1"}}
        execution = self.request(RULES[rule]["action"]["ref"], given, context=context)
        self.execute(execution)
        return execution


MOVES: dict[str, list[dict[str, Any]]] = {
    "recover_orphans": [{"until": "reboot_hosts", "let_go": None}],
    "recover_left": [{"until": "reboot_hosts"}],
    "roll_back_degraded": [{"roll": [0]}],
    "pause_surge": [{}],
    "stop_lost_host": [{}],
    "resume_surge": [{"step": {"pause_pop": {"cause": "surge"}}}],
}


@pytest.mark.slow
@pytest.mark.parametrize("rule", [*MOVES, "advance_soaking"])
def test_what_a_rule_does_is_signed_by_it(rule: str, tmp_path: Path, clock: VirtualClock) -> None:
    world: World = Soaking(tmp_path) if rule == "advance_soaking" else World(tmp_path)
    if isinstance(world, Soaking):
        world.soak(test=300.0, began=610)
    else:
        world.mark("baseline")
        world.mark("changing")
        Scenario(world, clock).play(MOVES[rule])
    trigger = {
        "recover_left": {"execution": "run-1", "ended": "canceled"},
        "roll_back_degraded": {
            "rollout": world.rollout,
            "epoch": world.head.epoch,
            "reason": "ill",
        },
        **dict.fromkeys(("pause_surge", "stop_lost_host"), {"pop": "lab1", "reason": "much"}),
        "resume_surge": {"pop": "lab1"},
    }
    before = len(world.head.history)
    done = BySystem(world, tmp_path).begin(rule, **trigger.get(rule, {}))
    assert done.status == "succeeded", done.result
    kept, by = str(world.context.store.list("edgetune.")), f"rule edgetune.{rule}"
    assert SYSTEM not in kept and by in kept
    signs = {entry.by for entry in world.head.history[before:]} - {""}
    assert signs <= {by, f"recovery by advance_rollout of {by}"}


@pytest.mark.slow
def test_who_took_it_back_is_exported_told_and_shown(tmp_path: Path, clock: VirtualClock) -> None:
    """A person, a rule, or what a workflow did by itself; never by a name alone that was given."""
    world = World(tmp_path)
    world.mark("baseline")
    world.mark("changing")
    BySystem(world, tmp_path).begin("recover_left", execution="run-1", ended="canceled")
    by = "rule edgetune.recover_left"
    assert f"({by})" in world.status(rollout=world.rollout)
    assert [entry.by for entry in world.head.history if entry.state == "rolling_back"] == [by]
    values = read_state(world.context)
    found = {who: values.sum("edgetune_rollbacks_total", "accept_queue", who) for who in WHO}
    assert found == {"person": 0, "rule": 0, "recovery": 1}


WHO = ("person", "rule", "recovery")


@pytest.mark.slow
def test_a_person_who_gives_another_name_is_named_all_the_same(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.mark("baseline")
    conductor = Conductor(world, tmp_path)
    given = {"rollout": world.rollout, "requested_by": "ceo", "reason": "no"}
    done = conductor.request("roll_back_pop", given, context={"user": "ana"})
    conductor.execute(done)
    assert done.status == "succeeded", done.result
    signs = {entry.by for entry in world.head.history if entry.state.startswith("roll")}
    assert signs == {"ana as ceo"}
