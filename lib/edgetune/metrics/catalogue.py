# SPDX-License-Identifier: Apache-2.0
"""The metrics that intents and guards may name, and the counters they are made of.

Counters only grow within one boot of a host and are compared as rates (per second, or per
``per`` counter); gauges are averaged over the window. ``rx_dropped`` and ``rx_missed`` are
only ever used as a sum: kernels moved drops from one to the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One metric; ``better`` is the direction that is an improvement."""

    title: str
    counters: tuple[str, ...] = ()
    per: str | None = None
    gauge: str | None = None
    better: str = "lower"


METRICS: Mapping[str, Metric] = {
    "listen_drops": Metric("connections dropped by full accept queues, per s", ("listen_drops",)),
    "packet_drops": Metric("packets dropped on receive, per s", ("rx_dropped", "rx_missed")),
    "backlog_drops": Metric("packets dropped by full CPU backlogs, per s", ("backlog_dropped",)),
    "retransmits": Metric(
        "TCP segments sent again, per segment sent", ("tcp_retransmits",), per="tcp_segments_out"
    ),
    "cpu": Metric("CPU time in use, share", ("cpu_busy_ms",), per="cpu_total_ms"),
    "health_p50": Metric("health check, median, ms", gauge="health_p50_ms"),
    "health_p95": Metric("health check, 95th percentile, ms", gauge="health_p95_ms"),
    "health_p99": Metric("health check, 99th percentile, ms", gauge="health_p99_ms"),
    "health_failed": Metric("health checks that failed, share", gauge="health_failed"),
}
