# SPDX-License-Identifier: Apache-2.0
"""What a person does to an execution by StackStorm's own words, and what is left of its rollout."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from edgetune.base.files import load_yaml
from tests.st2.stackstorm import (
    HOME,
    LEFT,
    PATIENCE,
    REAL,
    SOON,
    call,
    needs_stackstorm,
    run,
    start,
    states,
    status,
    until,
    until_state,
    wait_for,
)

pytestmark = needs_stackstorm
# What the tests' configuration says; the sweep comes once a minute.
OWNER_TIMEOUT = float(load_yaml(HOME / "edgetune.yaml")["owner_timeout"]) if HOME.exists() else 0.0


def test_a_paused_execution_stays_as_it_is_and_goes_on_where_it_stands() -> None:
    """As a rollout changes hosts, and as it is taken back; whatever time passes."""
    forth = start("rollout_pop", **{**SOON, **LEFT})
    until_state("changing", forth)
    rollout = _newest()["rollout"]
    _paused_for_long(forth, rollout, "rollout_pop")
    ended = wait_for(forth)
    assert ended["result"]["output"]["outcome"] == "soaking", ended["result"]
    back = start("roll_back_pop", rollout=rollout)
    until_state("rolling_back", back)
    _paused_for_long(back, rollout, "roll_back_pop")
    assert wait_for(back)["result"]["output"]["outcome"] == "rolled_back"
    assert status(rollout)["quarantined"] == {}


def _paused_for_long(execution: str, rollout: str, action: str) -> None:
    until(lambda: _out(rollout) > 0, 60)
    _become(execution, "pausing")
    until(lambda: _status(execution) == "paused", 100)
    told = _story(rollout)
    state, out = status(rollout)["state"], _out(rollout)
    words = f"{action} is paused in StackStorm"
    assert words in _text(rollout) and f"st2 execution resume {execution}" in _text(rollout)
    time.sleep((OWNER_TIMEOUT + 130) * PATIENCE)
    assert (status(rollout)["state"], _out(rollout), _story(rollout)) == (state, out, told)
    assert _status(execution) == "paused"
    # The sweep wrote it down, so that what begins on this PoP is refused with it.
    refused = run("pause_pop", pop="lab1", reason="another cause")
    try:
        assert words in run("resume_pop", pop="lab1")["result"]["result"]["message"]
    finally:
        assert refused["status"] == "succeeded"
    _become(execution, "resuming")
    until(lambda: "PAUSED" not in run("rollout_status")["result"]["result"]["text"], 100)


@pytest.mark.parametrize("by", ["roll_back_pop", "retire_tuning"])
def test_what_a_canceled_rollback_left_is_recovered_at_once(by: str) -> None:
    soon, whole = {**SOON, **LEFT}, {**REAL, "tuning": "accept_queue"}
    retires = by == "retire_tuning"
    forth = run("rollout_pop", **(whole if retires else soon))
    outcome, rollout = (forth["result"]["output"][each] for each in ("outcome", "rollout"))
    assert outcome == ("promoted" if retires else "soaking"), forth["result"]
    tuned = {"pop": "lab1", "tuning": "accept_queue"}
    execution = start(by, **(tuned if retires else {"rollout": rollout}))
    until_state("rolling_back", execution)
    until(lambda: _out(rollout) > 0, 60)
    call("DELETE", f"/executions/{execution}")
    canceled = time.monotonic()
    until(lambda: "recover_left" in _story(rollout), 60)
    assert time.monotonic() - canceled < 60 * PATIENCE
    until(lambda: status(rollout)["state"] == "rolled_back", 200)
    assert _status(execution) == "canceled" and status(rollout)["quarantined"] == {}


@pytest.mark.parametrize("ended", ["failed", "timeout", "abandoned"])
def test_an_owner_that_somebody_ends_leaves_an_orphan_at_once(ended: str) -> None:
    execution = start("rollout_pop", **{**SOON, **LEFT})
    until_state("changing", execution)
    rollout = _newest()["rollout"]
    until(lambda: _out(rollout) > 0, 60)
    _become(execution, ended)
    decided = "roll_back: " if ended == "timeout" else "carry_on: "
    until(lambda: decided in _story(rollout), 100)
    until(lambda: not {"changing", "rolling_back"} & set(states()), 400)
    assert status(rollout)["state"] == ("rolled_back" if ended == "timeout" else "soaking")
    if ended != "timeout":
        back = run("roll_back_pop", rollout=rollout)
        assert back["result"]["output"]["outcome"] == "rolled_back"
    assert status(rollout)["quarantined"] == {}


def _become(execution: str, status: str) -> None:
    call("PUT", f"/executions/{execution}", json={"status": status})


def _status(execution: str) -> str:
    return str(call("GET", f"/executions/{execution}")["status"])


def _newest() -> Any:
    (newest,) = run("rollout_status", pop="lab1")["result"]["result"]["rollouts"][-1:]
    return newest


def _lines(rollout: str) -> list[str]:
    told = run("rollout_status", rollout=rollout)["result"]["result"]["text"]
    return str(told).splitlines()


def _text(rollout: str) -> str:
    """How it stands, without the breaks of lines."""
    return " ".join(" ".join(_lines(rollout)).split())


def _story(rollout: str) -> str:
    """Its history."""
    return "\n".join(line for line in _lines(rollout) if re.match(r" +\d{4}-\d\d-\d\d ", line))


def _out(rollout: str) -> int:
    """How many of its hosts are out of service, by its record."""
    found = re.search(r"(\d+) hosts? out", _text(rollout))
    return int(found[1]) if found else 0
