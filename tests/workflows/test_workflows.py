# SPDX-License-Identifier: Apache-2.0
"""Workflows: what orquesta inspects, and what it cannot know."""

from __future__ import annotations

import pytest

from edgetune.base.documents.stackstorm import COMPLETED
from lab.runner.inspection import inspect
from lab.runner.metadata import Pack
from lab.runner.orquesta_compat import specs
from tests.support import ROOT
from tests.support.metadata.values import documents, known
from tests.support.metadata.workflows import workflow_problems

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


LEFT_TO_THE_SWEEP = {
    # While everything is stopped it fails, and would begin anew at once.
    "recover_rollout",
    # The rollout_pop that it calls takes its rollouts over first of all.
    "advance_campaign",
    # The person who hands over repeats it.
    "retire_tuning",
}


def test_what_an_owner_of_hosts_leaves_is_recovered_at_once() -> None:
    owners = {
        name
        for name, flow in FLOWS.items()
        for task in flow["tasks"].values()
        if "action_execution_id" in task.get("input", {}).get("owner", "")
    }
    criteria = documents(ROOT, "rules")["recover_left"]["criteria"]
    heard = {ref.removeprefix("edgetune.") for ref in criteria["trigger.action_ref"]["pattern"]}
    assert heard == owners - LEFT_TO_THE_SWEEP
    assert owners > LEFT_TO_THE_SWEEP
    ended = criteria["trigger.status"]["pattern"]
    assert {*ended, "succeeded"} == {*COMPLETED}
