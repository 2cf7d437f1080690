# SPDX-License-Identifier: Apache-2.0
"""The roles of deploy/rbac on a StackStorm with RBAC: what a person with them can do."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
import yaml

from tests.st2.stackstorm import HOME, REAL, key, needs_stackstorm, run, shown, st2, words

OPERATOR = os.environ.get("ST2_OPERATOR_TOKEN", "")

pytestmark = [
    *needs_stackstorm,
    pytest.mark.skipif(
        not OPERATOR,
        reason="ST2_OPERATOR_TOKEN is not set: the token of a user with the roles edgetune_viewer, "
        "edgetune_operator and edgetune_emergency, on a StackStorm with RBAC (docs/security.md)",
    ),
]


def as_operator(*words: str) -> subprocess.CompletedProcess[str]:
    """What a person with these roles sees who types that."""
    return st2(*words, ST2_AUTH_TOKEN=OPERATOR)


def told(action: str, **parameters: Any) -> Any:
    """The execution that `st2 run` shows an operator."""
    return shown(as_operator("run", "--json", f"edgetune.{action}", *words(parameters)))


def test_an_operator_sees_what_it_starts() -> None:
    seen = told("rollout_status")
    assert (seen["status"], bool(seen["result"]["result"]["text"])) == ("succeeded", True)


@pytest.mark.parametrize(
    "asked",
    [
        ("run", "edgetune.set_rollout_state", "rollout=x", "epoch=1", "state=complete"),
        ("run", "edgetune.push_configuration", "pop=lab1"),
        ("run", "edgetune.resume_all", "by=ana"),
        ("run", "core.local", "cmd=id"),
        ("key", "set", "edgetune.resumed", "x"),
    ],
)
def test_an_operator_may_do_nothing_else(asked: tuple[str, ...]) -> None:
    done = as_operator(*asked)
    assert "required permission" in done.stdout + done.stderr, done.stdout


def test_an_operator_rolls_out_a_bios_setting_and_cannot_read_its_login() -> None:
    login = yaml.safe_load((HOME / "lab/bmc-credentials.yaml").read_text(encoding="utf-8"))["lab"]
    with key("edgetune.bmc.lab", json.dumps(login), secret=True):
        seen = as_operator("key", "get", "--decrypt", "edgetune.bmc.lab")
        assert login["password"] not in seen.stdout + seen.stderr
        rolled = told("rollout_pop", tuning="home_snoop", **REAL)
        output = rolled["result"]["output"]
        assert (rolled["status"], output["outcome"]) == ("succeeded", "promoted"), output["text"]
        assert login["password"] not in json.dumps(rolled)
        # StackStorm lists what a role grants by name, whatever the prefix, and refuses nothing.
        listed = as_operator("key", "list", "--json", "--prefix", "edgetune.rollout.")
        assert (listed.returncode, output["rollout"] in listed.stdout) == (0, False), listed.stdout
        back = told("roll_back_pop", rollout=output["rollout"])
    assert back["result"]["output"]["outcome"] == "rolled_back"
    (rollout,) = run("rollout_status", rollout=output["rollout"])["result"]["result"]["rollouts"]
    assert rollout["state"] == "rolled_back" and rollout["quarantined"] == {}
