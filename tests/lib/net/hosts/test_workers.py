# SPDX-License-Identifier: Apache-2.0
"""More hosts than one core can ask: workers join, and nothing is left of them in the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetune.net.hosts import workers
from edgetune.site.inventory import Host
from tests.lib.net.hosts.test_fleet import Server
from tests.support import ROOT

pytestmark = pytest.mark.processes
CORES = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path)
    yield started
    started.close()


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "FROM", 5)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(CORES)))


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The workers that were begun."""
    found: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def starting(command: list[str], **more: object) -> subprocess.Popen[bytes]:
        found.append(popen(command, **more))  # type: ignore[call-overload]
        return found[-1]

    monkeypatch.setattr(workers.subprocess, "Popen", starting)
    return found


def hosts(server: Server, count: int) -> list[Host]:
    names = [f"e{i:03d}" for i in range(count)]
    return [Host(name, "127.0.0.1", server.port, "", "", name) for name in names]


def wait_for(server: Server, count: int) -> threading.Event:
    """Keep every answer back until so many hosts are asked at once, or the event is set."""
    enough = threading.Event()
    usual, lock, asked = server.answer, threading.Lock(), []

    def answer(request: dict[str, object]) -> bytes:
        with lock:
            asked.append(request)
            if len(asked) >= count:
                enough.set()
        enough.wait(600)
        return usual(request)

    server.answer = answer
    return enough


def test_workers_join_and_every_host_has_its_answer_in_order(
    server: Server, begun: list[subprocess.Popen[bytes]]
) -> None:
    """All seats are taken at once only if those of the workers are."""
    wait_for(server, 6)
    fleet = server.fleet(ssh_threads=6)
    known = hosts(server, 30)
    results = fleet.ask(known, "facts", lambda host: {"x": host.name}, 600)
    assert list(results) == [host.name for host in known]
    assert [each.error for each in results.values()] == [None] * 30
    assert sorted(str(each["x"]) for each in server.requests) == list(results)
    assert [own.returncode for own in begun] == [-signal.SIGKILL] * (CORES - 1)
    # No secret, nothing of a host, and no path in what every user sees.
    assert {tuple(own.args[1:]) for own in begun} == {("-m", "edgetune.net.hosts.worker")}


def test_few_hosts_are_asked_alone(server: Server, begun: list[subprocess.Popen[bytes]]) -> None:
    assert not server.fleet().ask(hosts(server, 4), "facts", lambda host: {}, 600)["e000"].error
    assert begun == []


def test_a_helper_that_dies_loses_what_it_asked_and_nothing_else(
    server: Server, begun: list[subprocess.Popen[bytes]]
) -> None:
    enough = wait_for(server, 6)

    def kill() -> None:
        assert enough.wait(600)
        for own in begun:
            own.kill()

    killing = threading.Thread(target=kill)
    killing.start()
    results = server.fleet(ssh_threads=6).ask(hosts(server, 20), "facts", lambda host: {}, 600)
    killing.join()
    errors = [each.error for each in results.values() if each.failed]
    assert set(errors) <= {"127.0.0.1: the process that asked it ended"}
    assert len(errors) <= 4
    assert {each.reason for each in results.values() if each.failed} <= {"unreachable"}


@pytest.mark.parametrize("program", ["/bin/false", "/nowhere/python3"])
def test_workers_that_cannot_begin_leave_the_work_to_us(
    server: Server, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    results = server.fleet(ssh_threads=6).ask(hosts(server, 12), "facts", lambda host: {}, 600)
    assert [each.error for each in results.values()] == [None] * 12


CALLER = """
import json, os, sys
from edgetune.site.config import read_config
from edgetune.net.hosts import workers
from edgetune.net.hosts.fleet import Fleet
from edgetune.site.inventory import Host
workers.FROM = 5
os.sched_getaffinity = lambda pid: {0, 1, 2}
config, port = json.load(sys.stdin)
hosts = [Host(f"e{i:03d}", "127.0.0.1", port, "", "", f"e{i:03d}") for i in range(30)]
Fleet(read_config(config)).ask(hosts, "facts", lambda host: {}, 600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_helper_outlives_the_one_that_began_it(
    server: Server, tmp_path: Path, how: signal.Signals
) -> None:
    """StackStorm kills the process of an action when its time is over, or it is cancelled."""
    enough = wait_for(server, 6)
    config = {
        "inventory": "none",
        "ssh_key_file": str(tmp_path / "id"),
        "ssh_known_hosts": str(tmp_path / "known_hosts"),
        "ssh_timeout": 60,
        "ssh_threads": 6,
    }
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'lib'}"},
        start_new_session=True,
    )
    assert caller.stdin
    caller.stdin.write(json.dumps([config, server.port]).encode())
    caller.stdin.close()
    while not enough.wait(0.5):
        assert caller.poll() is None
    own = children(caller.pid)
    assert len(own) == 2
    asked = len(server.requests)
    caller.send_signal(how)
    end = time.monotonic() + 60
    while any(map(is_there, own)):
        assert time.monotonic() < end
        time.sleep(0.05)
    caller.wait(60)
    assert len(server.requests) <= asked + 6


def is_there(pid: int) -> bool:
    """Whether a process still runs; one that nobody waited for has no command line."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(own) for own in text.split()]
