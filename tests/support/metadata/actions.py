# SPDX-License-Identifier: Apache-2.0
"""Actions: what registration accepts, and what a first run would find out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.metadata.schemas import ACTION, OVERRIDABLE, RUNNERS, Schema
from tests.support.metadata.source import run_problems
from tests.support.metadata.values import Document, own_parameters, shape, value_problems

_SUFFIXES = {"python-script": ".py", "orquesta": ".yaml"}


def action_problems(action: Document, root: Path) -> list[str]:
    """An action registers, and can be run."""
    found = shape(action, ACTION)
    if found:
        return found
    if action["runner_type"] not in RUNNERS:
        return [f"runner_type: {action['runner_type']!r} is none of {', '.join(RUNNERS)}"]
    own = own_parameters(action)
    problems = [
        *override_problems(action),
        *(problem for name in own for problem in parameter_problems(own[name], name)),
        *position_problems(action["parameters"]),
        *entry_point_problems(action, root),
    ]
    if action["runner_type"] == "python-script" and not problems:
        source = (root / "actions" / action["entry_point"]).read_text(encoding="utf-8")
        problems = run_problems(own, action["name"], source)
    return problems


def override_problems(action: Document) -> list[str]:
    """Of a runner's parameters only some keywords are overridden; a timeout always is."""
    runner = RUNNERS[action["runner_type"]]
    problems = []
    for name in sorted(set(runner).intersection(action["parameters"])):
        item = action["parameters"][name]
        field = f"parameters.{name}"
        problems += [
            f"{field}.{key}: cannot be overridden" for key in sorted(set(item) - OVERRIDABLE)
        ]
        if "default" in item:
            problems += value_problems(runner[name], item["default"], f"{field}.default")
    if "timeout" in runner and "default" not in action["parameters"].get("timeout", {}):
        problems.append("parameters.timeout: needs a default")
    return problems


def parameter_problems(parameter: Schema, name: str) -> list[str]:
    """A parameter of our own says what it is, and its default is one that it accepts."""
    field = f"parameters.{name}"
    typed = "type" in parameter or "anyOf" in parameter
    problems = [] if typed else [f"{field}.type: is missing"]
    problems += [] if "description" in parameter else [f"{field}.description: is missing"]
    if "default" in parameter:
        if parameter.get("required"):
            problems.append(f"{field}: is required and has a default")
        problems += value_problems(parameter, parameter["default"], f"{field}.default")
    elif parameter.get("immutable"):
        problems.append(f"{field}: is immutable, so it needs a default")
    return problems


def position_problems(parameters: Mapping[str, Schema]) -> list[str]:
    """Positions are 0, 1, 2 and so on, each once."""
    found = sorted(item["position"] for item in parameters.values() if "position" in item)
    if found == list(range(len(found))):
        return []
    return [f"parameters: positions must be 0, 1, ... each once, not {found}"]


def entry_point_problems(action: Document, root: Path) -> list[str]:
    """The file is below actions/ by its name alone, is there, and lies in the pack in truth."""
    entry = action["entry_point"]
    if action["runner_type"] not in _SUFFIXES:
        return ["entry_point: must be empty"] if entry else []
    if entry.startswith("/") or ".." in Path(entry).parts or str(Path(entry)) != entry:
        return [f"entry_point: {entry!r} must be a plain path below actions/"]
    file = (root / "actions" / entry).resolve()
    if not file.is_file():
        return [f"entry_point: there is no file actions/{entry}"]
    if root.resolve() not in file.parents:
        return [f"entry_point: actions/{entry} leaves the pack"]
    suffix = _SUFFIXES[action["runner_type"]]
    return [] if file.suffix == suffix else [f"entry_point: {entry!r} must end in {suffix}"]
