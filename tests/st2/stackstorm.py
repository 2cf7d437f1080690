# SPDX-License-Identifier: Apache-2.0
"""What the tests say to a running StackStorm."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.builders import ROOT

URL = os.environ.get("ST2_API_URL", "").rstrip("/").removesuffix("/v1")
HOME = Path(os.environ.get("EDGETUNE_HOME") or ROOT / ".edgetune")
SHORT = {"baseline": 14, "soak": 18, "interval": 2, "warmup": 3}
REAL = {"pop": "lab1", "dry_run": False, "wait": True, **SHORT}
ENDED = ("succeeded", "failed", "timeout", "canceled", "abandoned")

needs_stackstorm = pytest.mark.skipif(
    not URL, reason="no running StackStorm: ST2_API_URL is not set (see tests/st2/__init__.py)"
)


def ask(method: str, path: str, **more: Any) -> requests.Response:
    token = os.environ.get("ST2_AUTH_TOKEN")
    headers = {"X-Auth-Token": token} if token else {}
    return requests.request(method, f"{URL}/v1{path}", headers=headers, timeout=30, **more)


def call(method: str, path: str, **more: Any) -> Any:
    answer = ask(method, path, **more)
    assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
    return answer.json()


def refused(path: str, body: Any) -> str:
    """Why something that is posted is refused."""
    answer = ask("POST", path, json=body)
    assert not answer.ok, answer.text
    return str(answer.json()["faultstring"])


def start(action: str, **parameters: Any) -> str:
    body = {"action": f"edgetune.{action}", "parameters": parameters}
    return str(call("POST", "/executions", json=body)["id"])


def wait_for(execution: str, seconds: float = 400) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = call("GET", f"/executions/{execution}")
        if found["status"] in ENDED:
            return found
        time.sleep(0.5)
    raise AssertionError(f"{execution} did not end in {seconds} s")


def run(action: str, **parameters: Any) -> Any:
    return wait_for(start(action, **parameters))


def states() -> list[str]:
    """The states of all rollouts that have not ended."""
    return [row["state"] for row in run("rollout_status")["result"]["result"]["rollouts"]]


def status(rollout: str) -> Any:
    """How one rollout stands."""
    return run("rollout_status", rollout=rollout)["result"]["result"]["rollouts"][0]


def until(condition: Callable[[], Any], seconds: float) -> Any:
    """What the condition says once it says something."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(3)
    return found


@contextmanager
def rule(name: str, **parameters: Any) -> Iterator[None]:
    """Enable a rule for a while, its trigger with other parameters if there are any."""
    was = call("GET", f"/rules/edgetune.{name}")
    timer = {**was["trigger"], "parameters": {**was["trigger"].get("parameters", {}), **parameters}}
    timer = {key: timer[key] for key in ("type", "parameters")}
    call("PUT", f"/rules/{was['id']}", json={**was, "enabled": True, "trigger": timer})
    try:
        yield
    finally:
        call("PUT", f"/rules/{was['id']}", json=was)
