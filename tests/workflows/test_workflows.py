# SPDX-License-Identifier: Apache-2.0
"""Workflows: what orquesta inspects, what it cannot know, and that our own checks can fail."""

from __future__ import annotations

from typing import Any

import pytest

from lab.runner.inspection import inspect
from lab.runner.metadata import Pack
from lab.runner.orquesta_compat import specs
from tests.support import ROOT
from tests.support.metadata.values import REMOVED, Document, altered, documents, known
from tests.support.metadata.workflows import LEFT, WHY, workflow_problems

KNOWN = known(ROOT)
FLOWS = documents(ROOT, "workflows")


def test_each_workflow_has_its_action_and_each_such_action_its_workflow() -> None:
    entry_points = {
        action["entry_point"]
        for action in KNOWN.actions.values()
        if action["runner_type"] == "orquesta"
    }
    assert entry_points == {f"workflows/{name}.yaml" for name in FLOWS}


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOWS)
def test_orquesta_finds_nothing(name: str) -> None:
    spec = specs.instantiate((ROOT / "workflows" / f"{name}.yaml").read_text(encoding="utf-8"))
    context = {"st2": {"action_execution_id": "1", "user": "someone"}}
    assert inspect(spec, context, Pack(ROOT)) == []


@pytest.mark.parametrize("name", FLOWS)
def test_a_running_stackstorm_can_load_it(name: str) -> None:
    """Its own loader knows aliases of YAML, and no merge keys."""
    text = (ROOT / "workflows" / f"{name}.yaml").read_text(encoding="utf-8")
    assert "<<:" not in text


@pytest.mark.parametrize("name", FLOWS)
def test_workflow_fits_its_actions(name: str) -> None:
    problems = workflow_problems(name, FLOWS[name], KNOWN.actions)
    if problems:
        lines = [f"workflows/{name}.yaml: {problem}" for problem in problems]
        pytest.fail("\n".join(lines), pytrace=False)


ACTIONS: dict[str, Document] = {
    "edgetune.flow": {
        "runner_type": "orquesta",
        "parameters": {"host": {"type": "string", "required": True}},
        "output_schema": {"properties": {"answer": {"type": "string"}}},
    },
    "edgetune.ask": {
        "runner_type": "python-script",
        "parameters": {
            "host": {"type": "string", "required": True},
            "state": {"type": "string", "enum": ["old", "new"]},
            "timeout": {"default": 60},
        },
        "output_schema": {"properties": {"answer": {"type": "string"}}},
    },
}
FLOW: Document = {
    "input": ["host"],
    "vars": [{"answer": ""}, {"step": ""}, {"failure": {}}, {"message": ""}],
    "tasks": {
        "ask": {
            "action": "edgetune.ask",
            "input": {"host": "<% ctx(host) %>", "state": "old"},
            "next": [
                {
                    "when": "<% succeeded() %>",
                    "publish": [{"answer": "<% result().result.answer %>"}],
                    "do": "again",
                },
                {
                    "when": "<% failed() %>",
                    "publish": [{"step": "ask"}, {"failure": LEFT}],
                    "do": "explain",
                },
            ],
        },
        "again": {"action": "core.noop", "next": [{"do": ["again", "fail"]}]},
        "explain": {
            "action": "core.noop",
            "next": [{"publish": [{"message": f"<% {WHY}"}], "do": "fail"}],
        },
    },
    "output": [{"answer": "<% ctx(answer) %>"}],
}
BROKEN: list[tuple[str, Any, str]] = [
    ("input", [], "input: host is missing"),
    ("input", ["host", "requested_by"], "input: requested_by is not in the metadata"),
    ("output", [], "output: answer is missing"),
    ("output", [{"answer": "<% ctx(anser) %>"}], "output: ctx(anser) is not in vars"),
    ("vars", [], "publish: answer is not in vars"),
    ("tasks.ask.next.1.publish", [], "tasks.ask.next: does not lead to explain"),
    ("tasks.ask.next.1.publish", [{"failure": LEFT}], "tasks.ask.next: does not lead to explain"),
    ("tasks.ask.next.1.publish.0.step", "aks", "tasks.ask.next: does not lead to explain"),
    ("tasks.ask.next.1.publish.1.failure", "it failed", "tasks.ask.next: does not lead to explain"),
    ("tasks.ask.next.1.when", "<% succeeded() %>", "tasks.ask.next: does not lead to explain"),
    ("tasks.ask.next.1.do", "again", "tasks.ask.next: does not lead to explain"),
    ("tasks.explain.next.0.publish.0.message", "it failed", "tasks.explain: does not tell in"),
    ("tasks.explain.action", REMOVED, "tasks.explain.next: ends the workflow, and has no action"),
    ("tasks.ask.action", "edgetune.aks", "tasks.ask.input: there is no action 'edgetune.aks'"),
    ("tasks.ask.delay", "<% ctx(host) %>", "tasks.ask.delay: '<% ctx(host) %>' may not be a whole"),
    ("tasks.ask.input", {}, "tasks.ask.input.host: is required by edgetune.ask"),
    ("tasks.ask.input.hots", "x", "tasks.ask.input.hots: is no parameter of edgetune.ask"),
    ("tasks.ask.input.host", 5, "tasks.ask.input.host: 5 is not of type 'string'"),
    ("tasks.ask.input.state", "odd", "tasks.ask.input.state: 'odd' is not one of"),
    ("tasks.ask.input.host", "<% task(a) %>", "tasks: task() is not used here"),
    ("tasks.ask.input.host", "<% st2kv('a') %>", "tasks: st2kv() is not used here"),
    ("tasks.ask.with", "<% ctx(hosts) %>", "tasks.ask.with: fan out inside an action"),
    ("tasks.ask.next.0.when", "<% result().result.no %>", "tasks.ask.next: result().result.no is"),
    ("tasks.ask.next.0.when", "<% result().output.answer %>", "result().output.answer is not in"),
    ("tasks.ask.next.0.do", "ask, again", "tasks: must start with ask alone, not with none"),
    ("tasks.more", {"action": "core.noop"}, "must start with ask alone, not with ask, more"),
    ("tasks.again.next.0.do", "nowhere", "tasks: there is no task nowhere"),
]


def test_a_good_workflow_has_no_problems() -> None:
    assert workflow_problems("flow", FLOW, ACTIONS) == []


@pytest.mark.parametrize(("path", "value", "expected"), BROKEN)
def test_a_broken_workflow_is_seen(path: str, value: Any, expected: str) -> None:
    found = workflow_problems("flow", altered(FLOW, path, value), ACTIONS)
    assert any(expected in problem for problem in found), found


def test_an_island_of_tasks_is_seen() -> None:
    loop = {"action": "core.noop", "next": [{"do": "island"}]}
    found = workflow_problems("flow", altered(FLOW, "tasks.island", loop), ACTIONS)
    assert found == ["tasks.island: is never reached"]


def test_a_task_that_the_errors_of_its_workflow_may_not_name_is_seen() -> None:
    flow = altered(FLOWS["roll_batch"], "tasks.more", {"action": "edgetune.check_health"})
    found = workflow_problems("roll_batch", flow, KNOWN.actions)
    assert "output: message does not name more" in found
