# SPDX-License-Identifier: Apache-2.0
"""A tuning is handed over on a running StackStorm: its effect stays, nothing tells of edgetune."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from edgetune.agent.vocabulary.places import HANDED_OVER
from edgetune.base.documents.head import head_key
from lab import pop as lab
from tests.st2.services import restart, services
from tests.st2.stackstorm import (
    ENDED,
    HOME,
    LEFT,
    PATIENCE,
    REAL,
    call,
    needs_stackstorm,
    run,
    st2,
    start,
    status,
    typed,
    until,
    wait_for,
)
from tests.st2.test_by_itself import _hosts, one_pop

pytestmark = [*needs_stackstorm, one_pop]
# It is set while hosts serve, so neither the rollout nor the way back needs a boot.
TUNING, KEY = "steady_window", "net.ipv4.tcp_slow_start_after_idle"
FILE = f"/etc/sysctl.d/{HANDED_OVER}{TUNING}.conf"
SLOW = "e003"
PROGRAM = "/usr/local/sbin/python3"
# Below `ssh_timeout`, and longer than the test needs to see what the record says meanwhile.
WRAPPER = f"printf '#!/bin/sh\\nsleep 4\\nexec /usr/bin/python3 \"$@\"\\n' > {PROGRAM}"


def _on(host: str, command: str) -> str:
    return lab.console(HOME, host, ["sh", "-c", command]).strip()


def _hand_over(**more: Any) -> dict[str, Any]:
    return {"pop": "lab1", "tuning": TUNING, "hand_over": True, **more}


def _head(rollout: str) -> Any:
    """The record as it is at this moment: an action would take seconds to tell."""
    return json.loads(call("GET", f"/keys/{head_key(rollout)}")["value"])


def _files(host: str) -> list[str]:
    return _on(host, f"grep -ls {KEY} /etc/sysctl.d/*; true").splitlines()


def _value(host: str) -> str:
    return _on(host, f"sysctl -n {KEY}")


@pytest.fixture
def promoted() -> Iterator[str]:
    """A rollout that stands; in the end the hosts are as before, whatever was handed over."""
    output = run("rollout_pop", tuning=TUNING, **REAL)["result"]["output"]
    for _ in range(2):
        if output["outcome"] == "held":
            # Whether latencies of eight hosts prove anything is not what is tested here.
            again = {"rollout": output["rollout"], "dry_run": False, "wait": True}
            output = run("rollout_pop", **again)["result"]["output"]
    assert output["outcome"] == "promoted", output
    try:
        yield output["rollout"]
    finally:
        lab.heal(HOME)
        if _head(output["rollout"])["state"] == "handing_over":
            run("retire_tuning", **_hand_over())
        if _head(output["rollout"])["state"] == "handed_over":
            _forget()


def _forget() -> None:
    for host in _hosts():
        _on(host, f"rm -f {FILE} && sysctl -q -w {KEY}=1")


def _stands_without_us(rollout: str) -> None:
    """The effect is there, in files without our marks, and nothing stands by the records."""
    assert status(rollout)["state"] == "handed_over"
    for host in _hosts():
        assert (_value(host), _files(host)) == ("0", [FILE]), host
        text = _on(host, f"cat {FILE}")
        assert f"{KEY} = 0" in text and "edgetune" not in text, text
    applied = run("list_applied", pop="lab1", every=True)["result"]["result"]
    assert (applied["rollouts"], applied["message"]) == ([], "nothing stands there")
    for action, parameters in (
        ("roll_back_pop", {"rollout": rollout}),
        ("retire_tuning", {"pop": "lab1", "tuning": TUNING}),
        ("retire_tuning", _hand_over()),
    ):
        refused = run(action, **parameters)
        assert refused["status"] == "failed"
        assert f"rollout {rollout} was handed over at" in refused["result"]["output"]["message"]
    # Rounds of a test before this one may go on, and hold it up.
    assert run("roll_back_congestion", pop="lab1")["status"] == "succeeded"
    removed = run("uninstall_agent", pop="lab1")
    assert removed["status"] == "succeeded", removed["result"]
    assert {(_value(host), *_files(host)) for host in _hosts()} == {("0", FILE)}


def _shows_what_would_come_of_it(rollout: str) -> None:
    told = typed("retire_tuning", **_hand_over(dry_run=True))
    assert (told["rollouts"], sorted(told["files"])) == ([], _hosts()), told
    assert {name for own in told["files"].values() for name in own.values()} == {FILE}
    assert "would be handed over on 8 of 8 hosts" in told["message"]
    assert _head(rollout)["state"] == "complete"
    assert {FILE in _files(host) for host in _hosts()} == {False}


@contextmanager
def _in_the_middle(rollout: str) -> Iterator[str]:
    """The execution of a hand-over that waits for its last host."""
    _on(SLOW, f"{WRAPPER}; chmod +x {PROGRAM}")
    try:
        begun = start("retire_tuning", **_hand_over())
        _until_under_way(rollout, begun)
        lab.inject(HOME, "cut", SLOW)
        others = [host for host in _hosts() if host != SLOW]
        until(lambda: {FILE in _files(host) for host in others} == {True}, 60)
        yield begun
    finally:
        lab.heal(HOME)
        _on(SLOW, f"rm -f {PROGRAM}")


def _until_under_way(rollout: str, execution: str) -> None:
    """Until the hosts are about to be asked, which the last one takes some seconds to answer."""
    epoch = _head(rollout)["epoch"]
    deadline = time.monotonic() + 100 * PATIENCE
    while (head := _head(rollout))["state"] != "handing_over" or head["epoch"] == epoch:
        assert time.monotonic() < deadline, head
        assert call("GET", f"/executions/{execution}")["status"] not in ENDED
        time.sleep(0.1)


def _left_half_done(rollout: str) -> None:
    """What the record tells people, and what it refuses."""
    text = run("rollout_status")["result"]["result"]["text"]
    assert "HANDING OVER" in text and "hand_over=true" in text, text
    refused = run("roll_back_pop", rollout=rollout)
    assert refused["status"] == "failed"
    assert "is being handed over" in refused["result"]["output"]["message"]
    planned = run("rollout_pop", tuning="accept_queue", **{**REAL, **LEFT})
    assert planned["status"] == "failed"
    assert rollout in planned["result"]["output"]["message"]


def test_a_hand_over_that_dies_or_is_canceled_is_finished_by_the_next(
    tuned: None, promoted: str
) -> None:
    """Killed where all hosts but one are done, then canceled at the same place."""
    runners = services("st2actionrunner")
    _shows_what_would_come_of_it(promoted)
    with _in_the_middle(promoted) as killed:
        (step,) = call("GET", f"/executions/{killed}/children?depth=1")
        runner = call("GET", f"/executions/{step['id']}")["liveaction"]["runner_info"]["pid"]
        assert runner in runners
        restart(runner)
    assert _head(promoted)["state"] == "handing_over"
    _left_half_done(promoted)
    # Its execution is ended, as nobody is left to end it.
    ended = wait_for(killed)
    assert ended["status"] != "succeeded", ended["result"]
    with _in_the_middle(promoted) as canceled:
        asked = st2("execution", "cancel", canceled)
        assert asked.returncode == 0, asked.stdout + asked.stderr
    # StackStorm lets a running action end.
    assert wait_for(canceled)["status"] == "canceled"
    if _head(promoted)["state"] == "handing_over":
        done = run("retire_tuning", **_hand_over())
        assert done["result"]["output"]["rollouts"] == [promoted], done["result"]
    _stands_without_us(promoted)
