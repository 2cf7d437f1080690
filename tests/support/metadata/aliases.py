# SPDX-License-Identifier: Apache-2.0
"""Aliases: every name in a command, an answer or a default is one that the action knows."""

from __future__ import annotations

import re
from collections.abc import Mapping

import jinja2

from tests.support.metadata.schemas import ALIAS
from tests.support.metadata.values import Document, call_problems, own_parameters, shape

_NAME = re.compile(r"\{\{\s*(\w+)\s*(?:=.*?)?\}\}")
_ASKED = re.compile(r"execution\.parameters\.(\w+)")
_ANSWERED = re.compile(r"execution\.result\.(result|output)\.(\w+)")
_KEYS = {"python-script": "result", "orquesta": "output"}


def alias_problems(alias: Document, actions: Mapping[str, Document]) -> list[str]:
    """An alias registers, and its commands and answers fit its action."""
    found = shape(alias, ALIAS)
    if found:
        return found
    ref = alias["action_ref"]
    if ref not in actions:
        return [f"action_ref: there is no action {ref!r}"]
    return [
        *_command_problems(alias, actions),
        *_answer_problems(alias, actions[ref]),
    ]


def _command_problems(alias: Document, actions: Mapping[str, Document]) -> list[str]:
    fixed = alias.get("immutable_parameters", {})
    problems = []
    for command in (text for item in alias["formats"] for text in item["representation"]):
        given = {**fixed, **dict.fromkeys(_NAME.findall(command), "{{ }}")}
        problems += call_problems(actions, alias["action_ref"], given, f"formats: {command!r}")
        problems += [
            f"formats: {command!r}.{name}: is an immutable parameter, so every use is refused"
            for name in _NAME.findall(command)
            if name in fixed
        ]
    return problems


def _answer_problems(alias: Document, action: Document) -> list[str]:
    key = _KEYS[action["runner_type"]]
    # An action that fails answers with `error`.
    answers = {(key, name) for name in [*action["output_schema"]["properties"], "error"]}
    problems = []
    for part in ("ack", "result"):
        text = alias.get(part, {}).get("format", "")
        problems += [
            f"{part}.format: execution.parameters.{name} is no parameter of the action"
            for name in _ASKED.findall(text)
            if name not in own_parameters(action)
        ]
        problems += [
            f"{part}.format: execution.result.{'.'.join(found)} is not in its output_schema"
            for found in _ANSWERED.findall(text)
            if found not in answers
        ]
        problems += _template_problems(text, part)
    return problems


def _template_problems(text: str, part: str) -> list[str]:
    try:
        jinja2.Environment(autoescape=False).parse(text)
    except jinja2.TemplateSyntaxError as error:
        return [f"{part}.format: {error}"]
    return []
