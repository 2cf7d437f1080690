# SPDX-License-Identifier: Apache-2.0
"""The rules for Prometheus: alerts fire when they should, and lead to where help is."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from edgetune.base.options import options_of
from edgetune.fleet.export.families import FAMILIES
from edgetune.rollout.evidence.sampling import stale_after
from edgetune.rollout.ownership.automation import QUIET
from edgetune.rollout.status.congestion import STALE as ROUNDS_STALE
from edgetune.site.config import Config
from tests.support import ROOT
from tests.support.metadata.values import documents
from tests.support.scraped import RULES

UNIT_TESTS = ROOT / "tests/deploy/prometheus" / "edgetune.rules.test.yaml"
RULE_LIST = [
    rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
]
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for rule in RULE_LIST if "alert" in rule}
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
ACTIONS = documents(ROOT, "actions")
COMMAND = re.compile(r"st2 run edgetune\.(\w+)((?: \w+=(?:\{\{ \$labels\.pop \}\}|\S+))*)")

promtool = [
    pytest.mark.processes,
    pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed"),
]


def run(*words: str) -> None:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


class TestPromtool:
    pytestmark = promtool

    def test_rules_are_well_formed(self) -> None:
        run("check", "rules", "--lint=all", "--lint-fatal", str(RULES))

    def test_alerts_fire_when_they_should_and_no_other_does(self) -> None:
        run("test", "rules", str(UNIT_TESTS))


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_seen_to_fire_says_which_command_helps_and_leads_to_the_runbook(
    name: str,
) -> None:
    assert f'alertname="{name}", alertstate="firing"' in UNIT_TESTS.read_text()
    rule = ALERTS[name]
    told = rule["annotations"]
    assert set(told) == {"summary", "description", "runbook_url"}
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    commands = COMMAND.findall(told["description"])
    assert commands, told["description"]
    for action, given in commands:
        parameters = set(re.findall(r"(\w+)=", given))
        assert parameters <= set(ACTIONS[action]["parameters"]), told["description"]
    page, _, anchor = told["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (.+)$", RUNBOOK, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in headings}
    assert page == "docs/runbook.md" and anchor in anchors


def test_rules_name_metrics_that_are_exported() -> None:
    known = {family.name for family in FAMILIES}
    for rule in RULE_LIST:
        assert {*re.findall(r"edgetune_\w+", rule["expr"])} <= known


def test_limits_of_alerts_are_those_of_the_library() -> None:
    defaults = {each.name: each.default for each in options_of(Config)}
    overdue = re.findall(r"> (\d+) \+", ALERTS["EdgetuneLookOverdue"]["expr"])
    assert [float(found) for found in overdue] == [defaults["owner_timeout"]]
    (times, least) = re.findall(r"clamp_min\((\d) \* \w+, (\d+)\)", _expr("EdgetuneSamplesStale"))[
        0
    ]
    assert (stale_after(0), stale_after(1000)) == (float(least), 1000.0 * float(times))
    assert f"> {QUIET:g}" in _expr("EdgetuneGuardSilent")
    assert f"> {ROUNDS_STALE:g}" in _expr("EdgetuneCongestionRoundsStale")


def _expr(name: str) -> str:
    return str(ALERTS[name]["expr"])
