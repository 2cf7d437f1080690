# SPDX-License-Identifier: Apache-2.0
"""Requests of the agent's own, where a service has no access log: asked between the looks, counted
as those of any log, and no longer than anybody looks."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent import active_check
from edgetune.agent.dispatch import answer
from edgetune.agent.health import HealthCheck
from edgetune.agent.host import Host
from edgetune.agent.vocabulary.places import ACTIVE_LOG, ACTIVE_NOTE
from tests.support import ROOT
from tests.support.agent_root import agent_root, request
from tests.support.prometheus_api import Reply, api
from tests.support.waiting import wait_until

LOG = {"access_log": ACTIVE_LOG, "log_format": "active", "health_requests": 0}


def sample(root: Path, url: str, **fields: Any) -> Any:
    """Of a process of its own, as over SSH: its pipes are closed at its end."""
    asked = request("sample", **{**LOG, "health_url": url, **fields})
    done = subprocess.run(
        [sys.executable, "-m", "edgetune.agent"],
        input=asked,
        capture_output=True,
        timeout=120,
        env={**os.environ, "EDGETUNE_ROOT": str(root), "PYTHONPATH": str(ROOT / "lib")},
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.processes
def test_what_is_asked_between_looks_is_counted_and_asked_by_one_process(tmp_path: Path) -> None:
    with agent_root(tmp_path) as host, api() as service:
        service.answer = lambda asked: Reply(b"well", 200 if len(service.asked) % 2 else 503)
        log = host.path / ACTIVE_LOG[1:]

        def counters() -> Any:
            return sample(host.path, service.url)["result"]["counters"]

        assert counters()["request_ms"] == 0
        wait_until(lambda: counters()["request_ms"] >= 6, "requests")
        log.unlink()
        found = counters()
        assert found["http_responses"] == found["request_ms"]
        assert abs(found["http_5xx"] - found["http_responses"] / 2) <= 1
        # Nobody asks any more of the log that was removed; the look has begun another one.
        wait_until(lambda: log.read_text().count("\n") >= 2, "requests")
        with log.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        log.unlink()
        asked = len(service.asked)
        wait_until(lambda: not _asking(host.path), "the end of it")
        assert len(service.asked) <= asked + 1


def _asking(root: Path) -> bool:
    own = f"EDGETUNE_ROOT={root}".encode()
    environments = (each / "environ" for each in Path("/proc").glob("[0-9]*"))
    return any(own in _read(each).split(b"\0") for each in environments)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


class Clock:
    """Sleeps take no time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_requests_are_spread_evenly_until_nobody_has_wanted_them_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, log = Clock(), tmp_path / "log"
    monkeypatch.setattr(active_check, "time", clock)
    monkeypatch.setattr(active_check, "MOST_BYTES", 2000)
    told = tmp_path / ACTIVE_NOTE[1:]
    told.parent.mkdir(parents=True)
    told.write_text("")
    os.utime(told, (1300, 1300))
    asked: list[float] = []

    class Slow(HealthCheck):
        def ask(self) -> tuple[float | None, str]:
            asked.append(clock.now)
            # One in ten keeps the next ones back, which are made up for.
            clock.sleep(1.0 if len(asked) % 10 == 0 else 0.01)
            return (None, "is ill") if len(asked) % 10 == 0 else (10.0, "")

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    active_check.ask_until_unwanted(Host(str(tmp_path)), Slow("http://127.0.0.1/"), descriptor)
    os.close(descriptor)
    lines = log.read_text().splitlines()
    assert 1300 + active_check.PATIENCE <= clock.now < 1302 + active_check.PATIENCE
    assert len(asked) == pytest.approx((clock.now - 1000) / active_check.EVERY, abs=5)
    assert {*lines} == {"200 10.000", "599 1000.000"} and len(log.read_bytes()) <= 2020


def test_another_check_is_asked_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, int]] = []
    held: list[int] = []

    def begin(host: Host, check: HealthCheck, log: int) -> None:
        begun.append((check.asked, os.fstat(log).st_ino))
        held.append(os.dup(log))

    monkeypatch.setattr(active_check, "_ask_alone", begin)
    monkeypatch.setattr(os, "fork", lambda: 0)
    host, urls = Host(str(tmp_path)), ["http://127.0.0.1:1/"] * 2 + ["http://127.0.0.1:2/"] * 2
    for url in urls:
        active_check.start_asking(host, HealthCheck(url))
    assert [url for url, _ in begun] == urls[1:3]
    # The process of the check before sees that its log is gone.
    assert [os.fstat(each).st_nlink for each in held] == [0, 1]
    for each in held:
        os.close(each)


@pytest.mark.parametrize("fields", [{"access_log": "/var/log/a.log"}, {"health_url": None}])
def test_it_has_a_log_of_its_own_and_needs_a_health_check(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    with agent_root(tmp_path) as host:
        asked = {**LOG, "health_url": "http://127.0.0.1:1/", **fields}
        error = answer(str(host.path), request("sample", **asked))["error"]
    assert error["field"] == "log_format" and f"of the access log {ACTIVE_LOG}" in error["message"]
