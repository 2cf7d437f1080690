# SPDX-License-Identifier: Apache-2.0
"""The metrics that intents and guards may name, and the counters they are made of.

Counters only grow within one boot of a host and are compared per exposure: per ``per`` counter,
per packet where every host counts them (``per_if_known``), else per second. Gauges are averaged
over their readings. ``rx_dropped`` and ``rx_missed`` are only ever used as a sum: kernels moved
drops from one to the other.

CPU time is compared per packet, for a host that lost its traffic uses less of it, too. Which share
of the work a group does is a metric of its own, ``WORK``; every rollout has a guard of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PACKETS = "rx_packets"
WORK = "packets"
SECONDS = "seconds"
READINGS = "readings"


@dataclass(frozen=True)
class Metric:
    """One metric; ``better`` is the direction that is an improvement.

    ``phrase`` is what a group of hosts did, past tense, for a sentence; ``{much}`` becomes
    "12 % more", or "12 % fewer", which of a ``mass`` (time) is "12 % less".
    """

    title: str
    phrase: str
    counters: tuple[str, ...] = ()
    per: str | None = None
    per_if_known: str | None = None
    gauge: str | None = None
    mass: bool = False
    better: str = "lower"

    @property
    def sign_of_worse(self) -> str:
        """Of a change to the worse, for people."""
        return "+" if self.better == "lower" else "-"

    @property
    def asks_service(self) -> bool:
        """Whether it is known only where a PoP has a health check."""
        return (self.gauge or "").startswith("health_")


@dataclass(frozen=True)
class Unit:
    """How a rate over an exposure is shown: multiplied by ``scale``, with ``text`` behind."""

    text: str
    scale: float = 1.0


UNITS: Mapping[str, Unit] = {
    PACKETS: Unit("per million packets", 1e6),
    SECONDS: Unit("per s"),
    "tcp_segments_out": Unit("per segment sent"),
    # Of records of version 0.7 and before.
    "cpu_total_ms": Unit("per ms"),
    READINGS: Unit("mean"),
}
"""By exposure, as in ``Window.exposures``."""

METRICS: Mapping[str, Metric] = {
    "listen_drops": Metric(
        "connections dropped by full accept queues",
        "dropped {much} connections",
        ("listen_drops",),
        per_if_known=PACKETS,
    ),
    "packet_drops": Metric(
        "packets dropped on receive",
        "dropped {much} packets",
        ("rx_dropped", "rx_missed"),
        per_if_known=PACKETS,
    ),
    "backlog_drops": Metric(
        "packets dropped by full CPU backlogs",
        "dropped {much} packets at full CPU backlogs",
        ("backlog_dropped",),
        per_if_known=PACKETS,
    ),
    "retransmits": Metric(
        "TCP segments sent again",
        "sent {much} segments again",
        ("tcp_retransmits",),
        per="tcp_segments_out",
    ),
    "cpu": Metric(
        "CPU time in use, ms",
        "used {much} CPU time",
        ("cpu_busy_ms",),
        per_if_known=PACKETS,
        mass=True,
    ),
    WORK: Metric("packets received", "received {much} packets", (PACKETS,), better="higher"),
    "health_p50": Metric(
        "health check, median, ms",
        "took {much} time for health checks (median)",
        gauge="health_p50_ms",
        mass=True,
    ),
    "health_p95": Metric(
        "health check, 95th percentile, ms",
        "took {much} time for health checks (95th percentile)",
        gauge="health_p95_ms",
        mass=True,
    ),
    "health_p99": Metric(
        "health check, 99th percentile, ms",
        "took {much} time for health checks (99th percentile)",
        gauge="health_p99_ms",
        mass=True,
    ),
    "health_failed": Metric(
        "health checks that failed, share",
        "failed {much} health checks",
        gauge="health_failed",
    ),
}


COUNTERS = sorted(
    ({*UNITS} - {SECONDS, READINGS}).union(
        *(metric.counters for metric in METRICS.values()),
    )
)
"""What is kept of the counters of a sample: what happens, and all that it may be counted per."""

UNSTEADY: Mapping[str, float] = {"cpu_busy_ms": 1000.0}
"""By how much counters may fall without having been reset.

Linux adds the time of all CPUs up anew for each reader of /proc/stat, and does not see to it that
a later sum is none the less (Documentation/filesystems/proc.rst).
"""

GAUGES = sorted({"drifted"}.union(metric.gauge for metric in METRICS.values() if metric.gauge))
"""What is kept of its gauges: metrics, and how many settings have drifted."""


def told_by(source: str) -> Mapping[str, Mapping[str, object]]:
    """By reading, where a metric source has it; such as ``{"column": NAME}`` of ClickHouse."""
    return _TOLD_BY.get(source, {})


_TOLD_BY: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "clickhouse": {name: {"column": name} for name in [*COUNTERS, *GAUGES] if name != "drifted"},
}


def title(metric: str, exposure: str) -> str:
    """A metric's title with what it is counted per: "packets received, per s"."""
    return f"{METRICS[metric].title}, {UNITS[exposure].text}"
