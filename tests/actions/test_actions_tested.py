# SPDX-License-Identifier: Apache-2.0
"""Each action has a test: one with code a case of its own, a workflow a run.

The steps that actions run are found by the name of the action.
"""

from __future__ import annotations

import re

import pytest

from tests.actions.test_every_action import OWN, TABLE
from tests.support import ROOT
from tests.support.metadata.values import documents

ACTIONS = documents(ROOT, "actions")
WITH_CODE = [name for name, own in ACTIONS.items() if own["runner_type"] == "python-script"]
WORKFLOWS = [name for name, own in ACTIONS.items() if own["runner_type"] == "orquesta"]
SOURCES = {name: (ROOT / f"actions/{name}.py").read_text() for name in WITH_CODE}
ROOMS = ("report", "rollout", "wings/congestion/rounds")
"""Those of lib that have a file for each action."""
STEPS = {
    path.stem: room
    for room in ROOMS
    for path in (ROOT / f"lib/edgetune/{room}/steps").glob("*.py")
    if path.stem[0] != "_"
}
OF_ROOMS = [
    name
    for name, text in SOURCES.items()
    if any(f"from edgetune.{room.replace('/', '.')}.steps." in text for room in ROOMS)
]
CONDUCTS = re.compile(r"\b(lab\.runner|Conductor|tests\.support\.practice)\b")

TESTS = [path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py"))]
CASES = set(re.findall(r"^ +action_cls = (\w+)$", "\n".join(TESTS), re.MULTILINE))
CONDUCTED = {
    name for text in TESTS if CONDUCTS.search(text) for name in re.findall(r"[\"'](\w+)[\"']", text)
}


@pytest.mark.parametrize("name", WITH_CODE)
def test_an_action_with_code_has_a_case(name: str) -> None:
    classes = re.findall(r"^class (\w+)", SOURCES[name], re.MULTILINE)
    sentences = [each for each in TABLE.get(name, {}) if each not in OWN]
    assert sentences or CASES.intersection(classes), (
        f"{name}: write cases into tests/actions/every_action.yaml, or tests/actions/test_{name}.py"
    )


def test_every_row_of_the_table_is_of_an_action() -> None:
    assert {*TABLE} <= {*WITH_CODE}


@pytest.mark.parametrize("name", sorted({*STEPS, *OF_ROOMS}))
def test_an_action_runs_the_step_in_the_file_of_its_name(name: str) -> None:
    assert name in WITH_CODE, f"{name}: a step, but no action is named like it"
    assert name in STEPS, f"{name}: write lib/edgetune/rollout/steps/{name}.py"
    line = f"from edgetune.{STEPS[name].replace('/', '.')}.steps.{name} import {name}\n"
    assert line in SOURCES[name], f"actions/{name}.py: there is no `{line.strip()}`"
    first = re.search(r"run_step\(\s*(\w+),", SOURCES[name])
    assert first and first[1] == name, f"actions/{name}.py: runs another step"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_is_named_by_a_test_that_conducts_workflows(name: str) -> None:
    assert name in CONDUCTED, f"{name}: no test that conducts workflows names this one"


def test_every_action_is_of_one_of_these_sorts_or_a_text_for_chat() -> None:
    assert {*ACTIONS} - {*WITH_CODE, *WORKFLOWS} == {"post"}
