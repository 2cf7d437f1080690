# SPDX-License-Identifier: Apache-2.0
"""Rollouts on a running StackStorm whose hosts a hook takes out of traffic.

The hook stands before the HAProxy of the lab, so what it tells is so.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.base.errors import DrainError
from edgetune.base.files import load_yaml
from edgetune.net.traffic.driver import DrainDriver
from edgetune.net.traffic.drivers.haproxy import Haproxy
from tests.st2.stackstorm import INVENTORY, LEFT, REAL, needs_stackstorm, run
from tests.st2.test_by_itself import _hosts, _somaxconn, one_pop
from tests.support import ROOT
from tests.support.builders import write_yaml
from tests.support.prometheus_api import Reply, api

pytestmark = [*needs_stackstorm, one_pop]

PROGRAM = """#!/bin/sh
echo "$@" >> {log}
PYTHONPATH={paths} exec {python} -m tests.st2.test_hooks {address} {backend} "$@"
"""


# What a hook may say of a server (docs/how-to/hooks.md); a driver of ours says more.
TOLD = ("name", "withdrawn", "up", "sessions", "address", "port")
TOLD += ("checked", "passing", "leaving", "idle")


def document(balancer: DrainDriver) -> dict[str, Any]:
    """What a hook tells of an HAProxy."""
    servers = [
        {key: getattr(server, key) for key in TOLD} for server in balancer.servers().values()
    ]
    return {"servers": servers, "refuses": balancer.refuses_changes()}


def do(balancer: DrainDriver, what: str, server: str, *withdrawn: str) -> None:
    dict[str, Callable[..., None]](
        withdraw=balancer.withdraw, isolate=balancer.isolate, restore=balancer.restore
    )[what](server, *withdrawn)


class Hook:
    """An entry of the inventory, and what the hook was told."""

    def __init__(self, entry: Mapping[str, str], told: Callable[[], list[list[str]]]) -> None:
        self.entry, self.told = entry, told


@contextmanager
def command(folder: Path, lab: Mapping[str, str]) -> Iterator[Hook]:
    program, log = folder / "balancer", folder / "told"
    log.touch()
    paths = f"{ROOT}:{ROOT / 'lib'}"
    own = {"address": lab["address"], "backend": lab["backend"]}
    program.write_text(PROGRAM.format(log=log, paths=paths, python=sys.executable, **own))
    program.chmod(0o700)
    entry = {"driver": "command", "program": str(program)}
    yield Hook(entry, lambda: [line.split() for line in log.read_text().splitlines()])


@contextmanager
def http_hook(folder: Path, lab: Mapping[str, str]) -> Iterator[Hook]:
    balancer = Haproxy(lab["address"], lab["backend"])

    def answer(asked: Mapping[str, str]) -> Reply:
        try:
            if "do" in asked:
                given = [asked["withdrawn"]] if asked["do"] == "restore" else []
                do(balancer, asked["do"], asked["server"], *given)
            return Reply(json.dumps(document(balancer)).encode())
        except DrainError as error:
            return Reply(json.dumps({"detail": str(error)}).encode(), 503)

    with api() as server:
        server.answer = answer
        told = lambda: [[each["do"], each["server"]] for each in server.asked if "do" in each]  # noqa: E731
        yield Hook({"driver": "http_hook", "url": server.url}, told)


@pytest.fixture(params=[command, http_hook], ids=["command", "http_hook"])
def hook(request: Any, tmp_path: Path) -> Iterator[Hook]:
    """The lab's PoP is behind a hook for a while."""
    before = INVENTORY.read_bytes()
    inventory: Any = load_yaml(INVENTORY)
    with request.param(tmp_path, inventory["pops"]["lab1"]["load_balancer"]) as made:
        inventory["pops"]["lab1"]["load_balancer"] = made.entry
        write_yaml(INVENTORY, inventory)
        try:
            yield made
        finally:
            for row in run("rollout_status", pop="lab1")["result"]["result"]["rollouts"][-1:]:
                if row["state"] != "rolled_back":
                    run("roll_back_pop", rollout=row["rollout"])
            INVENTORY.write_bytes(before)


def test_a_hook_takes_each_host_out_and_puts_it_back(hook: Hook) -> None:
    doctor = run("doctor_pop", pop="lab1")["result"]["result"]
    assert not [each for each in hook.told() if each[0] != "servers"], doctor["text"]
    ended = run("rollout_pop", tuning="accept_queue", **{**REAL, **LEFT})
    output = ended["result"]["output"]
    assert (ended["status"], output["outcome"]) == ("succeeded", "soaking"), output
    assert sorted(_somaxconn(host) for host in _hosts()) == ["4096"] * 4 + ["8"] * 4
    _each_was_told(hook)
    back = run("roll_back_pop", rollout=output["rollout"])["result"]["output"]
    assert (back["outcome"], back["quarantined"]) == ("rolled_back", {})
    assert {_somaxconn(host) for host in _hosts()} == {"8"}


def _each_was_told(hook: Hook) -> None:
    told = [each[:2] for each in hook.told() if each[0] != "servers"]
    for host in _hosts():
        own = [what for what, server in told if server == host]
        assert own[0] == "withdraw" and own[-1] == "restore", (host, own)


if __name__ == "__main__":
    _, address, backend, *asked = sys.argv
    try:
        if asked == ["servers"]:
            print(json.dumps(document(Haproxy(address, backend))))
        else:
            do(Haproxy(address, backend), *asked)
    except DrainError as error:
        sys.exit(str(error))
