# SPDX-License-Identifier: Apache-2.0
"""What actions there are and what they take, as text of 80 columns, from the pack's metadata."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from lab.runner.metadata import Action, Pack, Schema, load_yaml
from lab.runner.templates import is_template

__all__ = ["action_help", "action_list", "is_for_people", "own_parameters"]

_WIDTH = 79
_KINDS = {
    "array": "list, as a,b,c",
    "boolean": "true or false",
    "integer": "whole number",
    "number": "number",
    "object": "object, as a=b,c=d",
}
_NAME = 20


def action_list(pack: Pack, everything: bool) -> str:
    """A line for each action that people run, or for ``everything``."""
    steps = _steps(pack)
    shown = [each for each in pack.actions.values() if everything or each.ref not in steps]
    lines = [f"{each.name:{_NAME}} {_first_words(each.description)}" for each in shown]
    if not everything and steps:
        lines.append("--all lists steps of workflows, too; run ACTION --help shows parameters.")
    return "\n".join(lines)


def is_for_people(pack: Pack, action: Action) -> bool:
    """Whether people run it, and not workflows and rules alone."""
    return action.ref not in _steps(pack)


def action_help(action: Action) -> str:
    """What an action does, and each parameter: type, bounds, default, meaning."""
    lines = [" ".join(["usage: edgetune run", action.name, "[KEY=VALUE ...]"]), ""]
    lines += [*textwrap.wrap(action.description, _WIDTH), ""]
    for name, schema in own_parameters(action).items():
        lines.append(f"  {name}: {_facts(schema)}")
        told = schema.get("description", "")
        lines += textwrap.wrap(told, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)


def own_parameters(action: Action) -> dict[str, Schema]:
    """Those that a person may give, without those of the runner."""
    return {
        name: schema
        for name, schema in action.parameters.items()
        if name not in action.runner_parameters and not schema.get("immutable")
    }


def _steps(pack: Pack) -> set[str]:
    """Refs of the actions that only workflows and rules call: chat has no words for them."""
    called = set(_refs(pack, "actions/workflows", r"action: (\S+)"))
    called |= {str(rule["action"]["ref"]) for rule in _files(pack, "rules")}
    return called - {str(alias["action_ref"]) for alias in _files(pack, "aliases")}


def _refs(pack: Pack, folder: str, pattern: str) -> Iterator[str]:
    for file in sorted((pack.root / folder).glob("*.yaml")):
        yield from re.findall(pattern, file.read_text(encoding="utf-8"))


def _files(pack: Pack, folder: str) -> Iterator[dict[str, Any]]:
    return map(load_yaml, sorted((pack.root / folder).glob("*.yaml")))


def _first_words(description: str) -> str:
    """Its first clause, or what of that fits a line."""
    clause = re.split(r"[.:;](?:\s|$)", re.sub(r" \([^)]*\)", "", description), maxsplit=1)[0]
    room = _WIDTH - _NAME - 1
    if len(clause) > room and "," in clause[:room]:
        clause = clause[:room].rpartition(",")[0]
    return textwrap.shorten(clause, room, placeholder=" ...")


def _facts(schema: Schema) -> str:
    """Such as ``number from 0.05 to 0.95, default 0.5``."""
    facts = [_type_of(schema)]
    default = schema.get("default")
    if schema.get("required") and default is None:
        facts.append("required")
    elif is_template(default):
        facts.append("default: filled in")
    elif default not in (None, "", [], {}):
        shown = default if isinstance(default, str) else json.dumps(default)
        facts.append(f"default {shown}")
    return ", ".join(facts)


def _type_of(schema: Schema) -> str:
    if "A duration" in schema.get("description", ""):
        return "duration"
    kind = _KINDS.get(schema.get("type", ""), "text")
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f"{kind} from {least} to {most}"
    if least is not None:
        return f"{kind}, at least {least}"
    return kind if most is None else f"{kind}, at most {most}"
