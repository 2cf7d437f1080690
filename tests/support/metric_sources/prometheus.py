# SPDX-License-Identifier: Apache-2.0
"""Hosts that a real Prometheus scrapes, by an exporter that tells what node_exporter tells."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Callable
from unittest import mock

import pytest

from edgetune.intent.metrics.catalogue import METRICS
from edgetune.net.metrics.sources.prometheus import FRESH
from edgetune.site.inventory import Host, Pop
from tests.support import leftovers
from tests.support.metric_sources import Begin, TestHosts
from tests.support.real_prometheus import (
    PROGRAM,
    SCRAPED_EVERY,
    Exported,
    Exporter,
    RealPrometheus,
    prometheus_of,
)


class News(float):
    """In place of FRESH: what was scraped before the moment ``cut`` is news no more."""

    cut = 0.0

    def __rsub__(self, now: float) -> float:
        return max(float(now) - float(self), self.cut)


_BOOTED = "node_boot_time_seconds"
# In which series a reading shows; a unit of the reading is so many of the series'.
_SERIES: Mapping[str, tuple[str, float]] = {
    "rx_packets": ('node_network_receive_packets_total{device="eth0"}', 1.0),
    "rx_dropped": ('node_network_receive_dropped_total{device="eth0"}', 1.0),
    "rx_missed": ('node_network_receive_missed_errors_total{device="eth0"}', 1.0),
    "backlog_dropped": ('node_softnet_dropped_total{cpu="1"}', 1.0),
    "listen_drops": ("node_netstat_TcpExt_ListenDrops", 1.0),
    "tcp_retransmits": ("node_netstat_Tcp_RetransSegs", 1.0),
    "tcp_segments_out": ("node_netstat_Tcp_OutSegs", 1.0),
    "cpu_busy_ms": ('node_cpu_seconds_total{cpu="0",mode="user"}', 1000.0),
}
# What is not the reading's, beside it.
_OTHERS = {
    'node_network_receive_packets_total{device="lo"}': 1e9,
    'node_network_receive_packets_total{device="eth0.100"}': 1e9,
    'node_softnet_dropped_total{cpu="0"}': 0.0,
    'node_cpu_seconds_total{cpu="0",mode="idle"}': 5e6,
    'node_cpu_seconds_total{cpu="1",mode="irq"}': 0.0,
}


_BOOT_INFO = 'edgetune_boot_info{boot_id="%s"}'


class Scraped(TestHosts):
    tells_health = tells_drift = False
    counters = sorted(METRICS.entries_of("prometheus"))
    apart = 2 * SCRAPED_EVERY

    def __init__(
        self, exporter: Exporter, servers: Mapping[str, RealPrometheus], news: News
    ) -> None:
        self.connections = SimpleNamespace(fleet=None, catalogue=METRICS)
        self._exporter, self._servers, self._news = exporter, servers, news
        for number, host in enumerate(exporter.hosts.values()):
            self._boot(host, time.time() - 1000 - number)
            host.series[_SERIES["rx_packets"][0]] = 5.0

    def fields(self, pop: str) -> Mapping[str, str]:
        run = next(iter(self._exporter.hosts.values())).run
        matcher = f'instance="{{address}}:9100", run="{run}"'
        return {"url": self._servers[pop].url, "matcher": matcher}

    def settle(self) -> None:
        self._exporter.settle(self._servers.values())

    def count(self, host: Host, reading: str, value: float | None) -> None:
        (series, scale), own = _SERIES[reading], self._exporter.hosts[host.address].series
        own.pop(series, None)
        if value is not None:
            own[series] = value / scale

    def boot(self, host: Host) -> None:
        self._boot(self._exporter.hosts[host.address], time.time())

    def _boot(self, host: Exported, at: float) -> None:
        known = {name: 0.0 for name in host.series if not name.startswith("edgetune")}
        told = {_BOOTED: at, **self._identity(f"boot-{at:.0f}")}
        host.series = {**_OTHERS, **known, **told}

    def _identity(self, boot: str) -> dict[str, float]:
        return {_BOOT_INFO % boot: 1.0}

    def go_silent(self, host: Host) -> None:
        self._exporter.hosts[host.address].silent = True
        self._news.cut = time.time()

    def go_away(self, pop: Pop) -> None:
        self._servers[pop.name].kill()
        for host in pop.hosts:
            self._exporter.hosts.pop(host.address)

    def uptime(self, host: Host) -> float:
        return time.time() - self._exporter.hosts[host.address].series[_BOOTED]

    def fall_ill(self, host: Host) -> None:
        """Its node_exporter tells nothing of its service."""

    def drift(self, host: Host, setting: str) -> None:
        raise NotImplementedError

    def oddities(self) -> Mapping[str, Callable[[Host], None]]:
        packets = "node_network_receive_packets_total"
        own = f'{packets}{{device="eth0"}}'
        return {
            "below zero": self._oddity({own: -5.0}),
            "no number": self._oddity({own: math.nan}),
            "infinity": self._oddity({own: math.inf}),
            "no time of boot": self._oddity({_BOOTED: None}),
            "a boot below zero": self._oddity({_BOOTED: -1.0}),
            "two replicas": self._oddity(
                {own: None, f'{packets}{{device="eth0",replica="a"}}': 5.0}
                | {f'{packets}{{device="eth0",replica="b"}}': 6.0}
            ),
            "two boots at once": self._oddity({_BOOT_INFO % "x": 1.0, _BOOT_INFO % "y": 1.0}),
            "both shapes": self._oddity(
                {'node_network_receive_drop_total{device="eth0"}': 1.0}
                | {'node_network_receive_dropped_total{device="eth0"}': 1.0}
            ),
        }

    def _oddity(self, told: Mapping[str, float | None]) -> Callable[[Host], None]:
        def make(host: Host) -> None:
            exported = self._exporter.hosts[host.address]
            exported.series = {**_OTHERS, _BOOTED: time.time() - 1000}
            exported.series.update({name: v for name, v in told.items() if v is not None})
            for name in {name for name, value in told.items() if value is None}:
                exported.series.pop(name, None)
            self._news.cut = time.time()

        return make


class WithoutIds(Scraped):
    """Hosts on which our agent has never been: a boot is told by its time alone."""

    def _identity(self, boot: str) -> dict[str, float]:
        return {}


class _Running:
    """The two Prometheus that all tests share: each needs five seconds until it scrapes.

    The series of each test have a label of their own.
    """

    def __init__(self) -> None:
        self._stack, self._runs = ExitStack(), count()
        self._exporter: Exporter | None = None
        self._servers: dict[str, RealPrometheus] = {}

    def begin(self) -> tuple[Exporter, Mapping[str, RealPrometheus]]:
        """Hosts that have told nothing yet, and what scrapes them."""
        if self._exporter is None:
            self._exporter = self._stack.enter_context(closing(Exporter()))
        exporter, run = self._exporter, str(next(self._runs))
        for number in (1, 2):
            addresses = [f"127.0.{number}.{host}" for host in (1, 2, 3)]
            exporter.hosts.update({address: Exported(run=run) for address in addresses})
            pop = f"lab{number}"
            if pop not in self._servers or self._servers[pop].process.poll() is not None:
                targets = [exporter.target(address) for address in addresses]
                self._servers[pop] = self._stack.enter_context(prometheus_of(targets))
        return exporter, self._servers

    def end(self) -> None:
        self._stack.close()
        self._exporter, self._servers = None, {}


_RUNNING = _Running()
end = _RUNNING.end


def _begin(kind: type[Scraped]) -> Begin:
    @contextmanager
    def begin() -> Iterator[TestHosts]:
        if not PROGRAM:
            pytest.skip("Prometheus is not installed")
        news = News(FRESH)
        with mock.patch("edgetune.net.metrics.sources.prometheus.FRESH", news):
            with leftovers.of_tests.of_wide_fixture():
                begun = _RUNNING.begin()
            yield kind(*begun, news)

    return begin


MEASURED: Mapping[str, Begin] = {"Prometheus": _begin(Scraped), "boot times": _begin(WithoutIds)}
