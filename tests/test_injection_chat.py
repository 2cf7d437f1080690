# SPDX-License-Identifier: Apache-2.0
"""Chat: what is answered notifies nobody and hides nothing, and what is typed is no expression."""

from __future__ import annotations

import re
from typing import Any

import jinja2
import pytest
from jinja2.sandbox import SandboxedEnvironment

from edgetune.entry import safe
from tests.builders import ROOT
from tests.hostile import HOSTILE
from tests.metadata.values import documents, own_parameters, shape

ACTIONS = {f"edgetune.{name}": own for name, own in documents(ROOT, "actions").items()}
ALIASES = documents(ROOT, "aliases")
WORKFLOWS = {ref: own for ref, own in ACTIONS.items() if own["runner_type"] == "orquesta"}
TEXTS = [
    (ref, name)
    for ref, own in WORKFLOWS.items()
    for name, parameter in own_parameters(own).items()
    if parameter["type"] in ("string", "array")
]
EXPRESSIONS = ("jinja", "jinja block", "jinja in pieces", "yaql", "yaql in pieces")
environment = SandboxedEnvironment(undefined=jinja2.StrictUndefined)


def answer(alias: dict[str, Any], status: str, text: str) -> str:
    """What the bot is told to say; ``{~}`` ends the part of it that is no attachment."""
    action = ACTIONS[alias["action_ref"]]
    told = {**dict.fromkeys(action["output_schema"]["properties"], text), "error": text}
    key = "output" if action["runner_type"] == "orquesta" else "result"
    execution = {"status": status, "result": {key: safe(told)}}
    said = environment.from_string(alias["result"]["format"]).render(execution=execution)
    return said.rstrip().removesuffix("{~}")


@pytest.mark.parametrize("status", ["succeeded", "failed", "timeout", "canceled"])
@pytest.mark.parametrize("name", ALIASES)
def test_an_answer_is_one_block_of_code(name: str, status: str) -> None:
    """Slack resolves ``<...>`` and ``&``, and formats what stands between backticks by itself."""
    for kind, text in HOSTILE.items():
        said = answer(ALIASES[name], status, text)
        assert said.startswith("```") and said.endswith("```"), kind
        inside = said[3:-3]
        assert inside.strip(), kind
        assert not set("<>`") & set(inside), kind
        assert re.sub(r"&(amp|lt|gt);", "", inside).count("&") == 0, kind


@pytest.mark.parametrize("name", ALIASES)
def test_an_answer_shows_what_was_said(name: str) -> None:
    said = answer(ALIASES[name], "succeeded", "p95 < 3 & rising")
    assert "p95 &lt; 3 &amp; rising" in said


@pytest.mark.parametrize("name", ALIASES)
def test_an_acknowledgement_repeats_nothing(name: str) -> None:
    assert "{" not in ALIASES[name]["ack"].get("format", "")


@pytest.mark.parametrize("name", ALIASES)
def test_who_asks_is_fixed_by_the_bot(name: str) -> None:
    """Else `by=somebody` at the end of a command would stand in the record."""
    alias = ALIASES[name]
    if "by" in ACTIONS[alias["action_ref"]]["parameters"]:
        by = environment.from_string(alias["immutable_parameters"]["by"])
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
