# SPDX-License-Identifier: Apache-2.0
"""What nobody asks for: sensors, rules and timers of a running StackStorm, and a death in it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from edgetune.base.files import load_yaml
from lab import pop as lab
from tests.st2.services import below, restart, services
from tests.st2.stackstorm import (
    ENDED,
    HOME,
    INVENTORY,
    LEFT,
    REAL,
    call,
    needs_stackstorm,
    rule,
    run,
    start,
    states,
    status,
    typed,
    until,
    until_state,
    wait_for,
)

pytestmark = needs_stackstorm
TWO = INVENTORY.exists() and len(load_yaml(INVENTORY)["pops"]) > 1
one_pop = pytest.mark.skipif(TWO, reason="four hosts a PoP decide nothing at alpha 0.05")
two_pops = pytest.mark.skipif(not TWO, reason="the lab has one PoP (edgetune lab up --pops 2)")


@one_pop
def test_st2_run_begins_a_soak_that_sensor_and_rule_roll_back() -> None:
    options = {**REAL, **LEFT, "tuning": "accept_queue"}
    output = typed("rollout_pop", **options)
    assert output["outcome"] == "soaking", output
    rollout = output["rollout"]
    tuned = [host for host in _hosts() if _somaxconn(host) == "4096"]
    assert len(tuned) == 4
    with rule("roll_back_degraded"), rule("sample_running", unit="seconds", delta=10):
        try:
            for host in tuned:
                lab.inject(HOME, "busy", host)
            until(lambda: status(rollout)["state"] == "rolled_back", 300)
        finally:
            lab.heal(HOME)
    assert status(rollout)["quarantined"] == {}
    assert {_somaxconn(host) for host in _hosts()} == {"8"}
    assert "rule edgetune.roll_back_degraded" in json.dumps(
        run("rollout_status", rollout=rollout)["result"]
    )


def _hosts() -> list[str]:
    state = lab.status(HOME)
    assert state is not None
    return [host["name"] for host in state["hosts"]]


def _somaxconn(host: str) -> str:
    return lab.console(HOME, host, ["sysctl", "-n", "net.core.somaxconn"]).strip()


@two_pops
def test_cron_promotes_a_campaign_of_two_rings() -> None:
    """Begun by hand, then nobody but the timers."""
    begun = run("run_campaign", campaign="practice", dry_run=False)
    assert begun["status"] == "succeeded", begun["result"]
    campaign = begun["result"]["result"]["campaign"]
    try:
        with (
            rule("advance_campaigns", minute="*", second="*/30"),
            rule("advance_soaking", unit="seconds", delta=10),
            rule("sample_running", unit="seconds", delta=5),
        ):
            until(lambda: _in_order(campaign)["state"] != "running", 900)
    finally:
        # Refused once it is complete.
        run("abort_campaign", campaign=campaign)
    ended = _in_order(campaign)
    assert ended["state"] == "complete", ended
    assert [ring["verdict"] for ring in ended["rings"]] == ["improved", "improved"]
    for rollout in [each for ring in ended["rings"] for each in ring["rollouts"].values()]:
        back = run("roll_back_pop", rollout=rollout)
        assert back["result"]["output"]["outcome"] == "rolled_back"


def _in_order(campaign: str) -> Any:
    """How a campaign stands, whose second ring has begun only if the first is proven."""
    found = run("campaign_status", campaign=campaign)["result"]["result"]["campaigns"][0]
    canary, fleet = found["rings"]
    assert canary["verdict"] == "improved" or not any(fleet["rollouts"].values())
    return found


@one_pop
def test_a_killed_action_runner_is_survived() -> None:
    """Killed with all it runs while hosts are changed, and started again as it was."""
    runner = services("st2actionrunner")[0]
    execution = start("rollout_pop", tuning="accept_queue", **{**REAL, **LEFT})
    until_state("changing", execution, 200)
    until(lambda: len(below(runner)) > 0, 60)
    restart(runner)
    killed = time.monotonic()
    # What is dead refuses nothing that a person asks for.
    assert run("rollout_pop", pop="lab1", tuning="accept_queue")["status"] != "canceled"
    until(lambda: "recover_orphans" in _history(), 150 - (time.monotonic() - killed))
    until(lambda: not {"changing", "rolling_back"} & set(states()), 400)
    (latest,) = run("rollout_status", pop="lab1")["result"]["result"]["rollouts"][-1:]
    assert latest["state"] in ("soaking", "rolled_back") and latest["quarantined"] == {}
    back = run("roll_back_pop", rollout=latest["rollout"])
    assert back["result"]["output"]["outcome"] in ("rolled_back", "nothing")
    until(lambda: call("GET", f"/executions/{execution}")["status"] in ENDED, 200)


@one_pop
def test_a_tick_that_died_holds_up_no_other() -> None:
    """The policy counts it until it is ended."""
    runners = services("st2actionrunner")
    begun = start("rollout_pop", tuning="accept_queue", **{**REAL, "baseline": "15m"})
    until_state("baseline", begun, 100)
    lab.inject(HOME, "cut", _hosts()[0])
    try:
        until(lambda: _newest_tick()["status"] == "running", 100)
        dead = _newest_tick()["id"]
        runner = call("GET", f"/executions/{dead}")["liveaction"]["runner_info"]["pid"]
        assert runner in runners
        restart(runner)
    finally:
        lab.heal(HOME)
    until(lambda: _newest_tick()["status"] == "canceled", 100)
    until(lambda: _newest_tick()["status"] == "succeeded", 200)
    assert call("GET", f"/executions/{dead}")["status"] == "abandoned"
    (latest,) = run("rollout_status", pop="lab1")["result"]["result"]["rollouts"][-1:]
    run("roll_back_pop", rollout=latest["rollout"])
    wait_for(begun, 200)


def _newest_tick() -> Any:
    (newest,) = call("GET", "/executions?action=edgetune.sample_running&limit=1")
    return newest


def _history() -> str:
    return str(run("rollout_status", pop="lab1")["result"]["result"]["text"])
