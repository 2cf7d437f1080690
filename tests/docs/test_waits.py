# SPDX-License-Identifier: Apache-2.0
"""Every wait has an end, true words, and somebody who is told; docs/waits.md has a row for each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from edgetune.base.documents.campaign import ENDED as CAMPAIGN_ENDED
from edgetune.base.documents.head import ENDED
from edgetune.base.documents.rounds import STATES as ROUNDS
from edgetune.base.documents.words import State
from edgetune.rollout.gates.pause import CAUSES
from tests.support import ROOT

LIB = ROOT / "lib/edgetune"
CLOCK = LIB / "base/clock.py"
# What makes a process wait; a step with ``retry_after`` has a workflow wait.
_WAITS = ("sleep", "wait", "select")
# Until what a batch waits that may not begin, as `Held` is told in the code.
_HELD = {
    "calm": "surge",
    "room": "room",
    "''": "frozen",
    "goes_on": "paused",
    "both": "twins",
    "apart": "group",
}


def rows() -> dict[str, list[str]]:
    """The rows of the page by each name that is in their first column."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "docs/waits.md").read_text().splitlines():
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            assert all(cells), line
            for name in re.findall("`([^`]+)`", first):
                assert name not in found, name
                found[name] = cells
    return found


def calls(node: ast.AST, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ast.Call]]:
    """Every call in a tree, with the name of the function that it is in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield ".".join(path), child
        named = isinstance(child, (ast.FunctionDef, ast.ClassDef))
        yield from calls(child, (*path, child.name) if named else path)  # type: ignore[attr-defined]


def parsed(file: Path, *words: str) -> ast.Module:
    """A module, or an empty one where its text has none of the words that are looked for."""
    text = file.read_text()
    return ast.parse(text if any(word in text for word in words) else "")


def called(call: ast.Call) -> str:
    function = call.func
    return getattr(function, "attr", getattr(function, "id", ""))


def in_code() -> Iterator[str]:
    for folder, prefix in (
        (LIB, ""),
        (ROOT / "sensors", "sensors/"),
        (ROOT / "actions", "actions/"),
    ):
        for file in sorted(folder.rglob("*.py")):
            if folder != LIB and "lib" in file.relative_to(folder).parts or file == CLOCK:
                continue
            for function, call in calls(parsed(file, *_WAITS)):
                if called(call) in _WAITS:
                    yield f"{prefix}{file.relative_to(folder)} {function}"


def in_workflows() -> Iterator[str]:
    for file in sorted((ROOT / "workflows").glob("*.yaml")):
        for name, task in yaml.safe_load(file.read_text())["tasks"].items():
            if "delay" in task or "retry" in task:
                yield f"{file.stem}: {name}"


def in_states() -> Iterator[str]:
    yield from (f"rollout {state}" for state in State if state not in ENDED)
    yield from (f"pause {cause}" for cause in CAUSES)
    yield from (f"congestion {state}" for state in ROUNDS)
    yield "everything stopped"
    holds = ast.parse((LIB / "rollout/gates/floor.py").read_text())
    for _, call in calls(holds):
        if called(call) == "Held":
            yield f"batch {_HELD[ast.unparse(call.args[1])]}"
    for file in (LIB / "fleet/campaign").glob("*.py"):
        for _, call in calls(ast.parse(file.read_text())):
            state = call.args[0] if called(call) == "become" and call.args else None
            if isinstance(state, ast.Constant) and state.value not in CAMPAIGN_ENDED:
                yield f"campaign {state.value}"


def test_the_page_has_each_wait_that_there_is_and_no_other() -> None:
    assert {*in_code(), *in_workflows(), *in_states()} == rows().keys()


def test_each_step_that_is_taken_again_has_a_workflow_that_waits() -> None:
    """So that each has a row."""
    steps = {
        function
        for file in LIB.rglob("*.py")
        for node in ast.walk(parsed(file, "retry_after"))
        if isinstance(node, ast.FunctionDef)
        for function in [node.name]
        for each in ast.walk(node)
        if isinstance(each, ast.Dict)
        if any(isinstance(key, ast.Constant) and key.value == "retry_after" for key in each.keys)
    }
    tasks = {
        task["action"].removeprefix("edgetune.")
        for file in (ROOT / "workflows").glob("*.yaml")
        for task in yaml.safe_load(file.read_text())["tasks"].values()
        if "delay" in task
    }
    # These two begin what check_rebooted awaits; these write the results of the drain and of
    # read_capacity.
    begin, write = {"apply_tuning", "reboot_hosts"}, {"drain_report", "_waits", "told"}
    assert steps - begin - write == tasks - {"drain_hosts", "check_drained", "read_capacity"}
