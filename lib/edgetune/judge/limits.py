# SPDX-License-Identifier: Apache-2.0
"""Hard limits: no statistics, they show a disaster on a single host.

A host is beyond them when more than ``FAILED`` of its health checks fail, or when their median
takes more than ``TIMES_USUAL`` times as long as both its own baseline and the hosts of its PoP that
were not changed, and longer than ``LEAST_MS`` ms.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping
from typing import Optional

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.table import SampleTable, countable

TIMES_USUAL = 10.0
LEAST_MS = 50.0
FAILED = 0.5

Gauges = Mapping[str, Mapping[str, Optional[float]]]
"""What hosts measured of themselves, by host and gauge."""


@dataclass(frozen=True)
class Newest:
    """The ``gauges`` of each host's newest sample, and its ``usual`` median in ms (see
    ``median_by_host``)."""

    gauges: Gauges
    usual: Mapping[str, float]


def median_by_host(samples: SampleTable) -> dict[str, float]:
    """Each host's median of its health check's medians, in ms."""
    seen: dict[int, list[float]] = {}
    for host, value in zip(samples.host, samples.gauge("health_p50_ms")):
        if countable(value):
            seen.setdefault(host, []).append(value)
    hosts = samples.hosts
    return {hosts[host]: statistics.median(values) for host, values in seen.items()}


def beyond_limits(
    hosts: Iterable[str],
    now: Gauges,
    before: Mapping[str, float],
    changed: Collection[str],
) -> dict[str, str]:
    """What is wrong with each of these hosts that is beyond the limits.

    ``now`` are the gauges of the PoP's hosts, ``before`` each one's usual median in ms. They are
    held against hosts that are not ``changed``: half a PoP may be, and be ill. Where all are, they
    are held against each other.
    """
    healthy = [own for name, own in now.items() if name not in changed] or list(now.values())
    medians = [ms for own in healthy if (ms := _reading(own, "health_p50_ms")) is not None]
    others = statistics.median(medians) if medians else None
    found = {name: _problem(now.get(name), before.get(name), others) for name in hosts}
    return {name: problem for name, problem in found.items() if problem}


def _problem(
    own: Mapping[str, float | None] | None, baseline: float | None, others: float | None
) -> str:
    if own is None:
        return "does not answer"
    failing, median = _reading(own, "health_failed"), _reading(own, "health_p50_ms")
    if failing is not None and failing > FAILED:
        return f"fails {failing:.0%} of its health checks"
    if median is None or baseline is None or others is None:
        return ""
    usual = max(baseline, others)
    if median <= max(LEAST_MS, TIMES_USUAL * usual):
        return ""
    return f"answers in {median:.0f} ms, {usual:.1f} ms is usual"


def _reading(gauges: Mapping[str, float | None], name: str) -> float | None:
    value = gauges.get(name)
    return float(value) if value is not None and countable(value) else None


def sickness(own: Mapping[str, float | None] | None, baseline: float | None) -> float:
    """How badly a host does, to put hosts in order: 0 is as before, a silent host is worst."""
    if own is None:
        return float("inf")
    median, failing = _reading(own, "health_p50_ms"), _reading(own, "health_failed")
    slower = median / baseline - 1 if median is not None and baseline else 0.0
    return max(0.0, slower) + TIMES_USUAL * (failing or 0.0)
