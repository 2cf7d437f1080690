# SPDX-License-Identifier: Apache-2.0
"""Agents that answer as real ones do, behind the fleet; only SSH is not there."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Callable
from unittest import mock

from edgetune.intent.metrics.catalogue import METRICS
from edgetune.net.hosts.fleet import Fleet, packed
from edgetune.site.inventory import Host, Pop
from tests.support.agent_answers import RESULTS, ROW
from tests.support.metric_sources import Begin, TestHosts

_WELL = {"health_failed": 0.0, "health_p50_ms": 1.5, "health_p95_ms": 2.0, "health_p99_ms": 2.5}


class _FleetWithoutSsh(Fleet):
    """It asks one host after the other."""

    def __init__(self) -> None:
        self._config: Any = SimpleNamespace(ssh_threads=1)
        self._agent = packed(b"")

    @contextmanager
    def _login(self, seats: int = 0) -> Iterator[Any]:
        yield None


class _Agent:
    """What one host tells; ``change`` makes another answer of the text."""

    def __init__(self) -> None:
        self.booted, self.boots = time.monotonic() - 1000.0, 1
        self.counters: dict[str, float | None] = {"rx_packets": 5.0, "rx_bytes": 7.0}
        self.health, self.drift = "", list[Any]()
        self.silent = False
        self.change: Callable[[str], str] = str

    def answer(self, request: dict[str, Any]) -> bytes:
        time.sleep(0.01)
        if self.silent:
            raise TimeoutError("timed out")
        asked = request["health_requests"] if "health_url" in request else 0
        gauges = {**_WELL, "health_failed": float(bool(self.health))} if asked else {}
        told = {
            **RESULTS["sample"],
            "boot_id": f"boot-{self.boots}",
            "uptime": time.monotonic() - self.booted,
            "counters": self.counters,
            "gauges": {**gauges, "drifted": len(self.drift), "load1": 0.5},
            "drift": self.drift,
            "health": self.health,
            "log": "",
        }
        reply = {"edgetune": 1, "verb": request["verb"], "ok": True, "result": told}
        return self.change(json.dumps(reply)).encode()


class Agents(TestHosts):
    tells_health = tells_drift = True

    def __init__(self) -> None:
        self.connections = SimpleNamespace(fleet=_FleetWithoutSsh(), catalogue=METRICS)
        self.of: defaultdict[str, _Agent] = defaultdict(_Agent)

    def fields(self, pop: str) -> Mapping[str, str]:
        return {}

    def converse(self, login: Any, host: Host, data: bytes, timeout: float, most: int) -> bytes:
        length, _, rest = data.partition(b"\n")
        return self.of[host.address].answer(json.loads(rest[int(length) :]))

    def count(self, host: Host, reading: str, value: float | None) -> None:
        self.of[host.address].counters[reading] = value

    def boot(self, host: Host) -> None:
        own = self.of[host.address]
        own.boots, own.booted = own.boots + 1, time.monotonic()
        own.counters = dict.fromkeys(own.counters, 0.0)

    def go_silent(self, host: Host) -> None:
        self.of[host.address].silent = True

    def go_away(self, pop: Pop) -> None:
        for host in pop.hosts:
            self.go_silent(host)

    def uptime(self, host: Host) -> float:
        return time.monotonic() - self.of[host.address].booted

    def fall_ill(self, host: Host) -> None:
        self.of[host.address].health = "answers 503 Service Unavailable"

    def drift(self, host: Host, setting: str) -> None:
        self.of[host.address].drift.append({**ROW, "tuning": "t", "id": setting})

    def oddities(self) -> Mapping[str, Callable[[Host], None]]:
        return {
            "half an answer": self._oddity(lambda text: text[: len(text) // 2]),
            "nothing": self._oddity(lambda text: ""),
            "another verb": self._oddity(lambda text: text.replace('"sample"', '"facts"')),
            "no boot": self._oddity(lambda text: text.replace('"boot_id"', '"boot"')),
            "no uptime": self._oddity(lambda text: text.replace('"uptime"', '"up"')),
            "below zero": self._oddity(lambda text: text.replace("5.0", "-5.0")),
            "no number": self._oddity(lambda text: text.replace("5.0", '"5.0"')),
            "NaN": self._oddity(lambda text: text.replace("5.0", "NaN")),
        }

    def _oddity(self, change: Callable[[str], str]) -> Callable[[Host], None]:
        def make(host: Host) -> None:
            self.of[host.address].change = change

        return make


@contextmanager
def _agents() -> Iterator[TestHosts]:
    agents = Agents()
    with (
        mock.patch("edgetune.net.hosts.fleet.converse", agents.converse),
        mock.patch("edgetune.net.hosts.fleet._TOGETHER", 0.0),
    ):
        yield agents


MEASURED: Mapping[str, Begin] = {"answers": _agents}
