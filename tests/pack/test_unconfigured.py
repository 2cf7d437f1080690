# SPDX-License-Identifier: Apache-2.0
"""A pack that nobody has configured yet: timers wait, and people are told what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.base.files import load_yaml
from lab.runner import Engine, Execution, Pack
from tests.lib.site.test_config import DEFAULTS
from tests.support import ROOT

pytestmark = pytest.mark.processes

RULES = [load_yaml(path) for path in sorted((ROOT / "rules").glob("*.yaml"))]
TICKS = {rule["name"]: rule["action"] for rule in RULES if "Timer" in rule["trigger"]["type"]}
FILE, COMMAND = "/opt/stackstorm/configs/edgetune.yaml", "st2ctl reload --register-configs"


def ended(folder: Path, action: dict[str, Any], config: dict[str, Any]) -> Execution:
    return Engine(Pack(ROOT), config, folder).run(action["ref"], dict(action["parameters"]))


def everything(execution: Execution) -> list[Execution]:
    return [execution, *(each for child in execution.children for each in everything(child))]


@pytest.mark.parametrize("rule", TICKS)
def test_a_tick_succeeds_does_nothing_and_says_what_to_do(tmp_path: Path, rule: str) -> None:
    execution = ended(tmp_path, TICKS[rule], DEFAULTS)
    assert {each.status for each in everything(execution)} == {"succeeded"}
    assert FILE in execution.payload["message"]
    assert COMMAND in execution.payload["message"]


@pytest.mark.parametrize("rule", TICKS)
def test_a_tick_with_a_wrong_configuration_fails(tmp_path: Path, rule: str) -> None:
    execution = ended(tmp_path, TICKS[rule], {**DEFAULTS, "inventory": 5})
    assert execution.status == "failed"
    told = execution.payload.get("message") or execution.payload["error"]
    assert "configuration: inventory: must be text" in told


@pytest.mark.parametrize("action", ["sample_hosts", "advance_soaking", "recover_orphans"])
def test_a_person_is_told_by_a_failure(tmp_path: Path, action: str) -> None:
    execution = ended(tmp_path, {"ref": f"edgetune.{action}", "parameters": {}}, DEFAULTS)
    assert execution.status == "failed"
    told = execution.payload.get("message") or execution.payload["error"]
    assert FILE in told and COMMAND in told
