# SPDX-License-Identifier: Apache-2.0
"""What the tests say to a running StackStorm."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import requests

from tests.support import ROOT

URL = os.environ.get("ST2_API_URL", "").rstrip("/").removesuffix("/v1")
# Else that of `make client`.
CLIENT = os.environ.get("ST2_CLIENT") or which("st2") or f"{sys.prefix}/st2client/bin/st2"
HOME = Path(os.environ.get("EDGETUNE_HOME") or ROOT / ".edgetune")
INVENTORY = HOME / "lab/inventory.yaml"
# Every wait is so many times as long as a quiet machine needs.
PATIENCE = float(os.environ.get("ST2_PATIENCE") or 1)
# The first rollout of the tutorial.
SHORT = dict(
    re.findall(
        r"(baseline|soak|interval|warmup)=(\w+)",
        (ROOT / "docs/tutorial.md").read_text(encoding="utf-8"),
    )[:4]
)
# Two samples have to fit into a baseline, also where a task takes a minute. Most of a soak has to
# be between its first and its last sample, which may be some intervals old at a look.
LONGER = {
    "baseline": f"{30 * PATIENCE:.0f}s",
    "soak": f"{60 * PATIENCE:.0f}s",
    "interval": f"{5 * PATIENCE:.0f}s",
}
REAL = {"pop": "lab1", "dry_run": False, "wait": True, **SHORT, **LONGER}
# Nobody stays with its soak, which the rule sample_running has to have time to sample.
LEFT = {"wait": False, "soak": "30m"}
# A rollout whose verdict does not matter. Its baseline holds two intervals, however they round.
SOON = {**REAL, "tuning": "accept_queue", "baseline": f"{10 * PATIENCE + 1:.0f}s"}
ENDED = ("succeeded", "failed", "timeout", "canceled", "abandoned")

needs_stackstorm = [
    pytest.mark.processes,
    pytest.mark.skipif(
        not URL, reason="no running StackStorm: ST2_API_URL is not set (see tests/st2/README.md)"
    ),
]


def ask(method: str, path: str, **more: Any) -> requests.Response:
    token = os.environ.get("ST2_AUTH_TOKEN")
    headers = {"X-Auth-Token": token} if token else {}
    return requests.request(
        method, f"{URL}/v1{path}", headers=headers, timeout=30 * PATIENCE, **more
    )


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
    deadline = time.monotonic() + seconds * PATIENCE
    while time.monotonic() < deadline:
        found = call("GET", f"/executions/{execution}")
        if found["status"] in ENDED:
            return found
        time.sleep(0.5)
    raise AssertionError(f"{execution} did not end in {seconds * PATIENCE:g} s")


def run(action: str, **parameters: Any) -> Any:
    return wait_for(start(action, **parameters))


def st2(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """What a person sees who types that."""
    # The client colours by the terminal's name, also what it writes into a pipe.
    environment = {**os.environ, "TERM": "dumb", **settings}
    return subprocess.run(
        [CLIENT, *words],
        capture_output=True,
        text=True,
        timeout=600 * PATIENCE,
        check=False,
        env=environment,
    )


def words(parameters: Mapping[str, Any]) -> list[str]:
    """Parameters as a person types them."""
    plain = {name: json.dumps(v) if isinstance(v, bool) else v for name, v in parameters.items()}
    return [f"{name}={value}" for name, value in plain.items()]


def shown(done: subprocess.CompletedProcess[str]) -> Any:
    """The execution that a client shows with --json; it may go on with a table of the tasks."""
    assert "{" in done.stdout, done.stderr + done.stdout
    found, _ = json.JSONDecoder().raw_decode(done.stdout[done.stdout.index("{") :])
    return found


def typed(action: str, **parameters: Any) -> Any:
    """The output of an action that a person runs."""
    done = st2("run", "--json", f"edgetune.{action}", *words(parameters))
    return shown(done)["result"]["output"]


def states() -> list[str]:
    """The states of all rollouts."""
    return [row["state"] for row in run("rollout_status")["result"]["result"]["rollouts"]]


def status(rollout: str) -> Any:
    """How one rollout stands."""
    return run("rollout_status", rollout=rollout)["result"]["result"]["rollouts"][0]


def until(condition: Callable[[], Any], seconds: float) -> Any:
    """What the condition says once it says something."""
    deadline = time.monotonic() + seconds * PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not so after {seconds * PATIENCE:g} s"
        time.sleep(3)
    return found


def until_state(state: str, execution: str, seconds: float = 400) -> None:
    """Wait for a state of the rollout that an execution began, unless that ended before."""

    def reached() -> bool:
        found = call("GET", f"/executions/{execution}")
        assert found["status"] not in ENDED, found["result"]
        return state in states()

    until(reached, seconds)


@contextmanager
def as_found() -> Iterator[None]:
    """What of the pack was on before is on afterwards, what was off is off, with its trigger."""
    before = _switches()
    try:
        yield
    finally:
        now = _switches()
        for path in (path for path in before if now.get(path, before[path]) != before[path]):
            row = call("GET", path)
            kind = path.split("/")[1]
            call("PUT", f"/{kind}/{row['id']}", json={**row, **before[path]})


def _switches() -> dict[str, dict[str, Any]]:
    """By path: whether it is on, and what of a rule's trigger somebody may have changed."""
    found = {}
    for kind in ("actions", "actionalias", "policies", "rules", "sensortypes"):
        for row in call("GET", f"/{kind}?pack=edgetune&limit=100"):
            own = {"enabled": row["enabled"]}
            if row.get("trigger"):
                own["trigger"] = {name: row["trigger"][name] for name in ("type", "parameters")}
            found[f"/{kind}/{row['ref']}"] = own
    return found


@contextmanager
def key(name: str, value: str, secret: bool = False) -> Iterator[None]:
    """Set a key of the datastore for a while."""
    path = f"/keys/{name}"
    found = ask("GET", f"{path}?decrypt=true")
    assert found.status_code in (200, 404), found.text
    row = {"name": name, "scope": "st2kv.system"}
    call("PUT", path, json={**row, "value": value, "secret": secret})
    try:
        yield
    finally:
        if found.ok:
            before = found.json()
            call("PUT", path, json={**row, "value": before["value"], "secret": before["secret"]})
        else:
            ask("DELETE", path)


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
