# SPDX-License-Identifier: Apache-2.0
"""Why a rollout was taken back, as a running StackStorm tells it."""

from __future__ import annotations

import pytest

from lab import pop as lab
from tests.st2.stackstorm import (
    HOME,
    PATIENCE,
    REAL,
    SHORT,
    needs_stackstorm,
    run,
    st2,
    start,
    until_state,
    wait_for,
    words,
)

pytestmark = needs_stackstorm
HOST = "e003"
BROKEN = "printf '#!/bin/sh\\necho hello\\n' > /usr/local/sbin/python3"


def _on_host(command: str) -> None:
    lab.console(HOME, HOST, ["sh", "-c", command], timeout=60 * PATIENCE)


def test_a_host_that_fails_in_the_baseline_is_the_reason_that_is_told() -> None:
    begun = start("rollout_pop", tuning="accept_queue", **REAL)
    try:
        until_state("baseline", begun, 120)
        _on_host(f"{BROKEN}; chmod +x /usr/local/sbin/python3")
        ended = wait_for(begun)
    finally:
        _on_host("rm -f /usr/local/sbin/python3")
    output = ended["result"]["output"]
    assert (ended["status"], output["outcome"]) == ("failed", "rolled_back"), output
    ended_as = "rolled_back: every host is as it was; why it was taken back: check_baseline: "
    assert output["message"].startswith(ended_as)
    assert HOST in output["message"]
    told = run("rollout_status", rollout=output["rollout"])["result"]["result"]["text"]
    assert "check_baseline: " in told and "(recovery by rollout_pop of " in told
    assert "asked for" not in told


def test_a_workflow_that_is_refused_says_why() -> None:
    ended = run("rollout_pop", pop="nowhere", tuning="accept_queue")
    assert ended["status"] == "failed"
    assert ended["result"]["output"]["message"].startswith("plan_rollout: ")
    assert "there is no PoP 'nowhere'" in ended["result"]["output"]["message"]


def test_the_client_shows_what_a_soak_that_decided_nothing_says_before_anything_else() -> None:
    """A held rollout succeeds, so the client has no error of StackStorm's own to show first."""
    short = {"interval": SHORT["interval"], "soak": "20s", "looks": 1}
    options = {**REAL, "tuning": "memory_watermarks", **short}
    shown = st2("run", "edgetune.rollout_pop", *words(options)).stdout
    result = shown.partition("result:")[2]
    rollout = next(line.split(": ")[1] for line in result.splitlines() if "rollout: lab1" in line)
    try:
        if "outcome: held" not in result:
            pytest.skip("a few seconds were enough for a verdict")
        assert "Execution failed" not in result
        lines = [line.strip() for line in result.splitlines() if line.strip()]
        assert lines[0] == "output:"
        assert lines[1].startswith("message: ")
        assert "inconclusive: " in lines[1] or "no_difference: " in lines[1]
    finally:
        run("roll_back_pop", rollout=rollout.strip())
