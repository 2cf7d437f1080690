# SPDX-License-Identifier: Apache-2.0
"""A StackStorm with two of each service, as fleets run it; one of each is killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from lab import pop as lab
from tests.st2.services import restart, services
from tests.st2.stackstorm import (
    HOME,
    LEFT,
    REAL,
    call,
    needs_stackstorm,
    rule,
    run,
    start,
    status,
    until,
)

pytestmark = needs_stackstorm
SERVICES = (
    "st2actionrunner",
    "st2workflowengine",
    "st2scheduler",
    "st2rulesengine",
    "st2sensorcontainer",
)


@pytest.fixture
def two_of_each() -> dict[str, list[int]]:
    return {name: services(name, least=2) for name in SERVICES}


def _actions(execution: str) -> Iterator[Any]:
    """Everything that a workflow did, in the workflows below, too."""
    for child in call("GET", f"/executions/{execution}/children?depth=1"):
        if child["runner"]["name"] == "orquesta":
            yield from _actions(child["id"])
        else:
            yield child


def _soaking(execution: str) -> str:
    """The rollout of an execution, once it soaks."""
    rollout = until(lambda: _begun_by(execution), 120)
    until(lambda: status(rollout)["state"] == "soaking", 600)
    return rollout


def _begun_by(execution: str) -> str:
    for child in call("GET", f"/executions/{execution}/children?depth=1"):
        if child["action"]["ref"] == "edgetune.claim_pop" and child["status"] == "succeeded":
            return str(child["result"]["result"]["rollout"])
    return ""


def test_one_of_each_is_killed_and_nothing_is_lost_or_done_twice(
    two_of_each: dict[str, list[int]],
) -> None:
    options = {**REAL, **LEFT, "tuning": "accept_queue"}
    execution = start("rollout_pop", **options)
    rollout = until(lambda: _begun_by(execution), 120)
    until(lambda: status(rollout)["state"] == "changing", 300)
    for processes in two_of_each.values():
        restart(processes[-1])
    assert _soaking(execution) == rollout
    done = Counter(
        (each["parent"], each["context"]["orquesta"]["task_execution_id"])
        for each in _actions(execution)
    )
    assert set(done.values()) == {1}
    told = json.dumps(run("rollout_status", rollout=rollout)["result"])
    assert "asked for" not in told
    assert run("roll_back_pop", rollout=rollout)["result"]["output"]["outcome"] == "rolled_back"


def test_one_rollout_is_carried_out_by_both_action_runners(
    two_of_each: dict[str, list[int]],
) -> None:
    execution = start("rollout_pop", **{**REAL, **LEFT, "tuning": "steady_window"})
    rollout = _soaking(execution)
    runners = {each["liveaction"]["runner_info"]["pid"] for each in _actions(execution)}
    assert len(runners) > 1
    run("roll_back_pop", rollout=rollout)


def test_illness_is_found_once_and_taken_back_once(two_of_each: dict[str, list[int]]) -> None:
    options = {**REAL, **LEFT, "tuning": "accept_queue"}
    rollout = _soaking(start("rollout_pop", **options))
    tuned = [host["name"] for host in lab.status(HOME)["hosts"] if _is_tuned(host["name"])]
    since = call("GET", "/executions?limit=1")[0]["start_timestamp"]
    with rule("roll_back_degraded"), rule("sample_running", unit="seconds", delta=10):
        try:
            for host in tuned:
                lab.inject(HOME, "busy", host)
            # Whichever looks now, the other one has to go on.
            restart(two_of_each["st2sensorcontainer"][0])
            until(lambda: status(rollout)["state"] == "rolled_back", 400)
        finally:
            lab.heal(HOME)
    query = f"action=edgetune.roll_back_pop&timestamp_gt={since}&limit=20"
    asked = call("GET", f"/executions?{query}")
    assert [each["status"] for each in asked].count("succeeded") == 1, asked
    assert {each["status"] for each in asked} == {"succeeded"}


def _is_tuned(host: str) -> bool:
    shown = lab.console(HOME, host, ["sysctl", "-n", "net.core.somaxconn"])
    return shown.strip() == "4096"
