# SPDX-License-Identifier: Apache-2.0
"""What docs/security.md ships: roles grant what there is, its program known agents."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent import bundle
from edgetune.net.hosts.fleet import packed
from edgetune.rollout.ownership.automation import GUARD_PROBLEM
from edgetune.rollout.ownership.kill_switch import RESUMED_KEY, STOP_KEY
from tests.support import ROOT
from tests.support.metadata.values import documents

RBAC = ROOT / "deploy" / "rbac"
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
# What a user needs to see, whatever else it may do: `st2 run` asks for runners, and an execution is
# seen by who may see its action. tests/st2/test_roles.py tries it on a StackStorm with RBAC.
SEES = {"": ["runner_type_list"], "pack:edgetune": ["action_view"]}
KEYS = {f"key_value_pair:st2kv.system:{key}" for key in (STOP_KEY, GUARD_PROBLEM)}
ACTIONS = {f"edgetune.{name}" for name in documents(ROOT, "actions")}


def roles() -> dict[str, list[str]]:
    """The actions that each role may start."""
    found = {}
    for role in documents(RBAC, "roles").values():
        assert set(role) == {"name", "description", "permission_grants"}
        grants = {
            own.get("resource_uid", ""): own["permission_types"]
            for own in role["permission_grants"]
        }
        sees = {uid: grants.pop(uid) for uid in SEES if uid in grants}
        assert sees == (SEES if role["name"] == "edgetune_viewer" else {})
        keys = [grants.pop(uid) for uid in KEYS if uid in grants]
        assert all(types == ["key_value_pair_set"] for types in keys)
        assert all(types == ["action_execute"] for types in grants.values())
        uids = [uid.split(":") for uid in grants]
        assert all(uid[0] == "action" for uid in uids)
        found[role["name"]] = [".".join(uid[1:]) for uid in uids]
    return found


def called_by_us() -> set[str]:
    """Actions that workflows and rules of the pack call."""
    tasks = [
        task for own in documents(ROOT, "workflows").values() for task in own["tasks"].values()
    ]
    rules = documents(ROOT, "rules").values()
    return {task.get("action", "") for task in tasks} | {rule["action"]["ref"] for rule in rules}


def test_roles_grant_each_action_that_there_is_once_unless_the_pack_calls_it() -> None:
    """Whoever adds an action says who may start it."""
    granted = [ref for refs in roles().values() for ref in refs]
    assert len(granted) == len({*granted})
    assert {*granted} <= ACTIONS and ACTIONS - {*granted} - called_by_us() == set()
    assert set(documents(RBAC, "assignments")["ana"]["roles"]) <= set(roles())


def test_the_page_names_each_role_by_its_file() -> None:
    assert [name for name in roles() if f"(../deploy/rbac/roles/{name}.yaml)" not in PAGE] == []


def test_the_list_of_actions_shows_a_person_those_that_are_hers() -> None:
    """`st2 action list` has no filter, and shows the description: nobody types an inner one."""
    granted = {ref for refs in roles().values() for ref in refs}
    inner = {
        f"edgetune.{name}"
        for name, own in documents(ROOT, "actions").items()
        if own["description"].startswith("(inner) ")
    }
    assert inner == ACTIONS - granted


def test_steps_of_workflows_are_granted_to_nobody() -> None:
    granted = {ref for refs in roles().values() for ref in refs}
    steps = "set_rollout_state begin_rollback take_over_for_rollback claim_pop take_over_rollout"
    steps += " drain_hosts apply_tuning set_bios select_prefixes push_configuration"
    assert not granted & {f"edgetune.{name}" for name in steps.split()}


def test_no_role_may_write_what_lifts_a_stop() -> None:
    for role in documents(RBAC, "roles").values():
        keys = [own.get("resource_uid", "") for own in role["permission_grants"]]
        assert [key for key in keys if RESUMED_KEY in key] == []


def gate(folder: Path, known: str, source: bytes) -> subprocess.CompletedProcess[bytes]:
    """What the program for hosts makes of an agent and a request that it does not know."""
    agents = folder / "agents"
    agents.write_text(f"{'0' * 64}\n{known}\n")
    program = folder / "gate"
    shipped = (ROOT / "deploy" / "sudo" / "edgetune-agent").read_text(encoding="utf-8")
    program.write_text(shipped.replace("/etc/edgetune-agents", str(agents)))
    request = json.dumps({"protocol": 1, "verb": "no such verb"}).encode()
    return subprocess.run(
        [sys.executable, "-IS", str(program)],
        input=packed(source) + request,
        capture_output=True,
        env={"EDGETUNE_ROOT": str(folder)},
        check=False,
    )


@pytest.mark.processes
def test_the_program_for_hosts_runs_a_known_agent(tmp_path: Path) -> None:
    source = bundle.make()
    done = gate(tmp_path, hashlib.sha256(source).hexdigest(), source)
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["edgetune"] == 1 and answer["error"]["field"] == "verb"


@pytest.mark.processes
def test_the_program_for_hosts_runs_nothing_else(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    source = f"open({str(mark)!r}, 'w')".encode()
    known = hashlib.sha256(bundle.make()).hexdigest()
    done = gate(tmp_path, known, source)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"this agent is not one of ")
    assert not mark.exists()
    gate(tmp_path, hashlib.sha256(source).hexdigest(), source)
    assert mark.exists()
