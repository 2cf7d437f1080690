# SPDX-License-Identifier: Apache-2.0
"""Chat: what is answered notifies nobody and hides nothing, and what is typed is no expression."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import jinja2
import pytest
from jinja2.sandbox import SandboxedEnvironment

from edgetune.report.action import safe
from tests.support import ROOT
from tests.support.hostile import HOSTILE
from tests.support.metadata.values import documents, own_parameters, shape

ACTIONS = {f"edgetune.{name}": own for name, own in documents(ROOT, "actions").items()}
ALIASES = documents(ROOT, "aliases")
WORKFLOWS = {ref: own for ref, own in ACTIONS.items() if own["runner_type"] == "orquesta"}
TEXTS = [
    (ref, name)
    for ref, own in WORKFLOWS.items()
    for name, parameter in own_parameters(own).items()
    if parameter["type"] in ("string", "array")
]
WITH_PAGES = [
    name
    for name, alias in ALIASES.items()
    if alias["action_ref"] not in WORKFLOWS
    and "text" in ACTIONS[alias["action_ref"]]["output_schema"]["properties"]
]
# One of each kind: all answers of a kind are made alike, says a test below.
ALIKE = [
    *{
        (own["action_ref"] in WORKFLOWS, name in WITH_PAGES): name for name, own in ALIASES.items()
    }.values()
]
EXPRESSIONS = ("jinja", "jinja block", "jinja in pieces", "yaql", "yaql in pieces")
environment = SandboxedEnvironment(
    undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
lenient = environment.overlay(undefined=jinja2.Undefined)
environment.filters["to_json_string"] = json.dumps
# What StackStorm may keep as the result of an execution that came to nothing.
NOTHING: list[dict[str, Any]] = [
    {},
    {"result": None},
    {"result": {}},
    {"result": {"result": "None", "exit_code": 1, "stderr": "Traceback"}},
    {"result": {"result": None, "error": "Action canceled by user."}},
    {"result": {"output": None, "errors": [{"message": "no such task"}]}},
    {"result": {"output": None, "errors": [{"result": {"result": "None"}}]}},
]


def execution_of(alias: dict[str, Any], status: str, text: str) -> dict[str, Any]:
    """An execution all of whose texts are this one."""
    action = ACTIONS[alias["action_ref"]]
    told = {**dict.fromkeys(action["output_schema"]["properties"], text), "error": text}
    key = "output" if action["runner_type"] == "orquesta" else "result"
    return {"id": "64f1", "status": status, "result": {key: safe(told)}}


def answer(alias: dict[str, Any], execution: dict[str, Any]) -> str:
    """What the bot makes an attachment of; nothing stands before it."""
    said = lenient.from_string(alias["result"]["format"]).render(execution=execution)
    before, shown = said.split("{~}")
    assert not before
    return shown.rstrip()


def look(alias: dict[str, Any], execution: dict[str, Any]) -> dict[str, Any]:
    """How the bot is told to show it. StackStorm renders it as one text of JSON."""
    text = json.dumps(alias["result"]["extra"]["slack"])
    made: dict[str, Any] = json.loads(environment.from_string(text).render(execution=execution))
    return made


@pytest.mark.parametrize("status", ["succeeded", "failed", "timeout", "canceled"])
@pytest.mark.parametrize("name", ALIKE)
def test_an_answer_is_one_block_of_code_and_stays_one_document(name: str, status: str) -> None:
    """Slack resolves ``<...>`` and ``&``, and formats what stands between backticks by itself."""
    alias = ALIASES[name]
    for kind, text in HOSTILE.items():
        execution = execution_of(alias, status, text)
        said = answer(alias, execution)
        assert said.startswith("```") and said.endswith("```"), kind
        inside = said[3:-3]
        assert inside.strip(), kind
        assert not set("<>`") & set(inside), kind
        assert re.sub(r"&(amp|lt|gt);", "", inside).count("&") == 0, kind
        if "color" in ACTIONS[alias["action_ref"]]["output_schema"]["properties"]:
            execution["result"]["result"]["color"] = "warning"
        assert set(look(alias, execution)) == set(alias["result"]["extra"]["slack"]), kind


@pytest.mark.parametrize("name", ALIASES)
def test_an_answer_shows_what_was_said_and_how_it_went(name: str) -> None:
    alias = ALIASES[name]
    execution = execution_of(alias, "succeeded", "p95 < 3 & rising")
    said = answer(alias, execution)
    assert "p95 &lt; 3 &amp; rising" in said
    assert not said.startswith("```succeeded")
    assert look(alias, execution_of(alias, "succeeded", ""))["color"] == "good"
    execution = execution_of(alias, "failed", "there is no PoP")
    said = answer(alias, execution)
    assert said.startswith("```failed: ") and "there is no PoP" in said
    assert look(alias, execution_of(alias, "failed", ""))["color"] == "danger"
    assert "{" not in alias["ack"].get("format", "")
    if name in {*WITH_PAGES} & {*ALIKE}:
        for text in ("one\ntwo", "x\n" * 3850, "<\n" * 1500):
            said = answer(alias, execution_of(alias, "succeeded", text))
            assert html.unescape(said) == f"```{text}```"
        execution = execution_of(alias, "failed", "x" * 8000 + "\nlast")
        said = "```failed: \n... 2 lines more: st2 execution get 64f1```"
        assert answer(alias, execution) == said


@pytest.mark.parametrize("name", ALIKE)
def test_an_answer_that_is_one_long_line_fits_into_one_message(name: str) -> None:
    """A PoP of 5,000 hosts, each named with what is wrong; hubot cuts at 7,900 characters."""
    alias = ALIASES[name]
    for text in ("&" * 9000, "x" * 9000):
        for said in ("message", "error"):
            execution = execution_of(alias, "failed", "")
            answered = next(iter(execution["result"].values()))
            answered[said] = text
            execution["result"]["errors"] = [{"result": {"result": {"error": text}}}]
            shown = answer(alias, execution)
            assert len(shown) < 7900 and shown.endswith("...```")
            assert html.unescape(shown).startswith(f"```failed: {text[:1400]}")


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_PAGES[:1])
@pytest.mark.parametrize("line", ["a row of the table", "p < 3 && q > 4 <<<<", "", "x" * 2000])
def test_a_page_that_is_too_long_ends_with_a_whole_line(name: str, line: str) -> None:
    """Counted as it is sent, which is escaped."""
    lines = [f"{number} {line}" for number in range(2000)]
    execution = execution_of(ALIASES[name], "failed", "\n".join(lines))
    *kept, last = html.unescape(answer(ALIASES[name], execution)[3:-3]).split("\n")
    assert kept[1:] == lines[1 : len(kept)] and kept[0] == f"failed: {lines[0]}"
    assert last == f"... {2000 - len(kept)} lines more: st2 execution get 64f1"
    said = answer(ALIASES[name], execution)
    assert 7900 > len(said) > 7700 - len(html.escape(line)) - 10


@pytest.mark.parametrize("name", ALIKE)
def test_an_execution_without_a_result_is_answered(name: str) -> None:
    for kept in NOTHING:
        execution = {"id": "64f1", "status": "canceled", **kept}
        assert answer(ALIASES[name], execution) == "```canceled: no answer```"
        assert look(ALIASES[name], execution)["color"] == "danger"


def test_all_answers_are_made_alike() -> None:
    """Of actions one way, of workflows another one; so nobody escapes on his own."""
    for runner in ("python-script", "orquesta"):
        own = [a for a in ALIASES.values() if ACTIONS[a["action_ref"]]["runner_type"] == runner]
        assert len({alias["result"]["format"] for alias in own}) == 1
        assert len({alias["result"]["extra"]["slack"]["color"] for alias in own}) == 1


def test_a_workflow_that_was_refused_says_why() -> None:
    error = {"task_id": "plan_rollout", "result": {"result": {"error": "there is no PoP 'x'"}}}
    result = {"output": {"message": "", "rollout": ""}, "errors": [error, {"message": "fail"}]}
    said = answer(ALIASES["start"], {"status": "failed", "result": result})
    assert said == "```failed: there is no PoP 'x'```"


@pytest.mark.parametrize("name", ALIASES)
def test_who_asks_is_fixed_by_the_bot(name: str) -> None:
    """Else `requested_by=somebody` at the end of a command would stand in the record."""
    alias = ALIASES[name]
    own = ACTIONS[alias["action_ref"]]["parameters"].get("requested_by", {"immutable": True})
    if own.get("immutable"):
        assert "requested_by" not in alias.get("immutable_parameters", {})
    else:
        by = environment.from_string(alias["immutable_parameters"]["requested_by"])
        assert by.render(api_user="ana", user="bot") == "ana"
        assert by.render(api_user=None, user="bot") == "bot"


def problems(ref: str, name: str, text: str) -> list[str]:
    """What StackStorm says of a parameter before the workflow begins."""
    parameter = dict(own_parameters(WORKFLOWS[ref])[name])
    kept = {key: parameter[key] for key in ("type", "pattern", "items") if key in parameter}
    return shape([text] if parameter["type"] == "array" else text, kept)


@pytest.mark.parametrize(("ref", "name"), TEXTS)
def test_a_workflow_takes_no_expression(ref: str, name: str) -> None:
    """Orquesta would evaluate it, with the rights of whoever began the workflow."""
    for kind in EXPRESSIONS:
        assert problems(ref, name, HOSTILE[kind]), kind
        assert problems(ref, name, f"a\n{HOSTILE[kind]}"), kind


@pytest.mark.parametrize(("ref", "name"), TEXTS)
def test_a_workflow_takes_all_other_texts(ref: str, name: str) -> None:
    for text in ("", "p95 < 3 ms, {ring: 512} at 100 %", "two\nlines", "naïve 東京"):
        assert problems(ref, name, text) == []
