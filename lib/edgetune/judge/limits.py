# SPDX-License-Identifier: Apache-2.0
"""What samples show without statistics: a disaster on a single host, and the load of a whole PoP.

A host is beyond them when more than ``FAILED`` of its health checks fail, or when their median
takes more than ``TIMES_USUAL`` times as long as both its baseline and the hosts of its PoP that
were not changed, and longer than ``LEAST_MS`` ms.

Load is packets received per second, summed over the PoP's hosts. A surge hits both groups alike: it
says nothing about a tuning, but it is no time to take a host out of service.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Optional

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.table import SampleTable, countable
from edgetune.base.durations import HOUR

TIMES_USUAL = 10.0
LEAST_MS = 50.0
FAILED = 0.5

Gauges = Mapping[str, Mapping[str, Optional[float]]]
"""What hosts measured of themselves, by host and gauge."""

LOAD = "rx_packets"
# Sweeps that meet at a host count the same packets, over a time that is hardly known: some
# drivers renew their counters but once a second.
_LEAST_SECONDS = 1.0
_MEASURED = 0.75
# What grew over a longer time tells of no hour.
_LONGEST_GAP = 1.5 * HOUR


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
    healthy = [gauges for name, gauges in now.items() if name not in changed] or list(now.values())
    medians = [ms for gauges in healthy if (ms := _reading(gauges, "health_p50_ms")) is not None]
    others = statistics.median(medians) if medians else None
    problems = {name: _problem(now.get(name), before.get(name), others) for name in hosts}
    return {name: problem for name, problem in problems.items() if problem}


def _problem(
    gauges: Mapping[str, float | None] | None, baseline: float | None, others: float | None
) -> str:
    if gauges is None:
        return "does not answer"
    failing, median = _reading(gauges, "health_failed"), _reading(gauges, "health_p50_ms")
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


def sickness(gauges: Mapping[str, float | None] | None, baseline: float | None) -> float:
    """How badly a host does, to put hosts in order: 0 is as before, a silent host is worst."""
    if gauges is None:
        return float("inf")
    median, failing = _reading(gauges, "health_p50_ms"), _reading(gauges, "health_failed")
    slower = median / baseline - 1 if median is not None and baseline else 0.0
    return max(0.0, slower) + TIMES_USUAL * (failing or 0.0)


def peak_load(samples: SampleTable, interval: float) -> float:
    """The most packets per second in any interval of the window; 0 if it cannot be known.

    A host that did not answer or that rebooted in an interval counts as idle there, and so does
    one whose packets were not read.
    """
    packets = samples.counter(LOAD)
    rates: dict[tuple[int, int], list[float]] = defaultdict(list)
    for host, rows in _by_host(samples).items():
        for earlier, later in _apart(samples, rows):
            rate = _rate(samples, packets, earlier, later)
            rates[int(samples.time[later] // interval), host].append(rate)
    load: dict[int, float] = defaultdict(float)
    for (slot, _), seen in rates.items():
        load[slot] += statistics.fmean(seen)
    return max(load.values(), default=0.0)


def _by_host(samples: SampleTable) -> dict[int, list[int]]:
    """The rows of each host whose times are known."""
    rows: dict[int, list[int]] = defaultdict(list)
    for row, host in enumerate(samples.host):
        if countable(samples.time[row]) and countable(samples.uptime[row]):
            rows[host].append(row)
    return rows


def _apart(samples: SampleTable, rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """A host's samples in pairs, without those that follow another one at once."""
    earlier = rows[0]
    for later in rows[1:]:
        seconds = samples.uptime[later] - samples.uptime[earlier]
        if samples.boot[later] == samples.boot[earlier] and 0 <= seconds < _LEAST_SECONDS:
            continue
        yield earlier, later
        earlier = later


def _rate(samples: SampleTable, packets: Sequence[float], earlier: int, later: int) -> float:
    grown, seconds = _grown(samples, packets, earlier, later)
    return grown / seconds if seconds else 0.0


def _grown(
    samples: SampleTable, packets: Sequence[float], earlier: int, later: int
) -> tuple[float, float]:
    """Packets between two samples of a host, and in how many seconds; both 0 if not known."""
    counted = packets[earlier], packets[later]
    if not all(map(countable, counted)) or samples.boot[later] != samples.boot[earlier]:
        return 0.0, 0.0
    grown = counted[1] - counted[0]
    seconds = samples.uptime[later] - samples.uptime[earlier]
    return (grown, seconds) if seconds > 0 and grown >= 0 else (0.0, 0.0)


def hourly_loads(samples: SampleTable, hosts: int) -> dict[int, float]:
    """The mean packets per second of a PoP of so many ``hosts``, by hour since the epoch.

    An hour is known where ``_MEASURED`` of the hosts were measured for half of it at least. Others
    count as those did: where nothing is known of a host it is not idle.
    """
    packets = samples.counter(LOAD)
    seen: dict[int, dict[int, tuple[float, float]]] = defaultdict(dict)
    for host, own in _by_host(samples).items():
        for earlier, later in _apart(samples, own):
            grown, seconds = _grown(samples, packets, earlier, later)
            if samples.time[later] - samples.time[earlier] > _LONGEST_GAP:
                continue
            hour = int((samples.time[earlier] + samples.time[later]) // (2 * HOUR))
            before = seen[hour].get(host, (0.0, 0.0))
            seen[hour][host] = before[0] + grown, before[1] + seconds
    rates = {
        hour: [grown / seconds for grown, seconds in own.values() if seconds >= HOUR / 2]
        for hour, own in seen.items()
    }
    least = max(1.0, _MEASURED * hosts)
    return {h: hosts * statistics.fmean(own) for h, own in rates.items() if len(own) >= least}
