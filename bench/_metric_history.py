# SPDX-License-Identifier: Apache-2.0
"""The same counters of the same hosts, as each metric source keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable

from edgetune.base.documents.sample import Sample, SampleAnswer
from edgetune.intent.metrics.catalogue import METRICS
from edgetune.net.metrics.samples import make_sample

POP = "bench1"
INTERVAL = 15.0
"""Seconds between two samples of a host."""
CPUS = 4
NICS = 2
PER_SECOND: Mapping[str, float] = {
    "rx_packets": 25_000.0,
    "rx_dropped": 2.0,
    "rx_missed": 0.0,
    "backlog_dropped": 0.5,
    "listen_drops": 0.25,
    "tcp_retransmits": 30.0,
    "tcp_segments_out": 20_000.0,
    "cpu_busy_ms": 3_000.0,
}
COLUMNS = ("host", "time", "boot_id", "uptime", *PER_SECOND)
"""Of the table in ClickHouse."""

_MODES = ("user", "nice", "system", "irq", "softirq", "steal", "idle", "iowait")
_IDLE = ("idle", "iowait")
# By reading: its series, the labels of each part that is added up, and what a unit of it is.
_SERIES: Mapping[str, tuple[str, list[str], float]] = {
    "rx_packets": (
        "node_network_receive_packets_total",
        [f'device="eth{nic}"' for nic in range(NICS)],
        1.0,
    ),
    "rx_dropped": (
        "node_network_receive_drop_total",
        [f'device="eth{nic}"' for nic in range(NICS)],
        1.0,
    ),
    "backlog_dropped": (
        "node_softnet_dropped_total",
        [f'cpu="{cpu}"' for cpu in range(CPUS)],
        1.0,
    ),
    "listen_drops": ("node_netstat_TcpExt_ListenDrops", [""], 1.0),
    "tcp_retransmits": ("node_netstat_Tcp_RetransSegs", [""], 1.0),
    "tcp_segments_out": ("node_netstat_Tcp_OutSegs", [""], 1.0),
    "cpu_busy_ms": (
        "node_cpu_seconds_total",
        [
            f'cpu="{cpu}",mode="{mode}"'
            for cpu in range(CPUS)
            for mode in _MODES
            if mode not in _IDLE
        ],
        0.001,
    ),
}
_OTHERS = [f'cpu="{cpu}",mode="{mode}"' for cpu in range(CPUS) for mode in _IDLE]
SERIES = sum(len(parts) for _, parts, _ in _SERIES.values()) + len(_OTHERS) + 2
"""Of one host in Prometheus, with its time of boot and the id of the boot."""


_Value = Callable[[int, float], float]
"""Of a host at a time."""


@dataclass(frozen=True)
class History:
    """What so many hosts counted in the ``minutes`` before ``end``, a minute before these, and one
    sample after them."""

    hosts: int
    minutes: float
    end: float

    @property
    def start(self) -> float:
        """Of the window that is looked at."""
        return self.end - self.minutes * 60

    @property
    def sweeps(self) -> int:
        """Samples of each host in the window."""
        return round(self.minutes * 60 / INTERVAL)

    def name(self, host: int) -> str:
        return f"e{host:05}"

    def address(self, host: int) -> str:
        return f"127.78.{host // 250}.{1 + host % 250}"

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Of the table in ClickHouse."""
        for host in range(self.hosts):
            own = {"host": self.name(host), "boot_id": _boot(host)}
            for at in self._scrapes(host):
                yield {**own, "time": at, "uptime": at - _booted(host), **_counters(host, at)}

    def swept(self) -> Iterator[list[Sample]]:
        """The samples of all hosts at each moment, as they are stored."""
        for number in self._numbers():
            at = self.end + number * INTERVAL
            yield [
                make_sample(self.name(host), at, _told(host, at), METRICS)
                for host in range(self.hosts)
            ]

    def openmetrics(self) -> Iterator[str]:
        """Lines of the history that promtool reads."""
        yield from self._family("node_boot_time_seconds", [""], lambda host, at: _booted(host))
        for host in range(self.hosts):
            labels = f'{self._instance(host)},boot_id="{_boot(host)}"'
            for at in self._scrapes(host):
                yield f"edgetune_boot_info{{{labels}}} 1 {at:.3f}\n"
        for reading, (series, parts, unit) in _SERIES.items():
            yield from self._family(series, parts, _part_of(reading, unit / len(parts)))
        yield from self._family("node_cpu_seconds_total", _OTHERS, lambda host, at: at - 1e9)
        yield "# EOF\n"

    def _family(self, name: str, parts: Sequence[str], value: _Value) -> Iterator[str]:
        for host in range(self.hosts):
            own = self._instance(host)
            told = [(at, value(host, at)) for at in self._scrapes(host)]
            for part in parts:
                labels = ",".join(filter(None, (own, part)))
                yield "".join(f"{name}{{{labels}}} {amount:.3f} {at:.3f}\n" for at, amount in told)

    def _instance(self, host: int) -> str:
        return f'instance="{self.address(host)}:9100"'

    def _scrapes(self, host: int) -> list[float]:
        """Hosts are scraped one after the other in each interval."""
        phase = (host % 150) / 150 * INTERVAL
        return [self.end + number * INTERVAL - phase for number in self._numbers()]

    def _numbers(self) -> range:
        return range(-self.sweeps - round(60 / INTERVAL), 2)


def _boot(host: int) -> str:
    return f"5f0c2f5e-6f0a-4b7e-9a53-{host:012x}"


def _booted(host: int) -> float:
    return 1_750_000_000.0 + host


def _counted(reading: str, host: int, at: float) -> float:
    return PER_SECOND[reading] * (at - _booted(host))


def _part_of(reading: str, share: float) -> _Value:
    return lambda host, at: _counted(reading, host, at) * share


def _counters(host: int, at: float) -> dict[str, float]:
    return {name: round(_counted(name, host, at), 3) for name in PER_SECOND}


def _told(host: int, at: float) -> SampleAnswer:
    return SampleAnswer(_boot(host), at - _booted(host), _counters(host, at), {}, [], "")
