# SPDX-License-Identifier: Apache-2.0
"""One series of samples of what two sources told of the same hosts."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import compress

from edgetune.metrics.table import SampleTable, countable

NEAR = 150.0
"""Seconds between samples of two sources that are told as one: half of the longest time between two
scrapes for which Prometheus still knows a value."""

_Rows = tuple[list[float], list[int]]


def attached(samples: SampleTable, more: SampleTable, near: float = NEAR) -> SampleTable:
    """The samples, oldest first, with the gauges of ``more`` that they lack.

    Each sample of ``more`` gives its gauges to the nearest one of the same host, or to the one
    beside that, where another gave it its own: sweeps that follow each other soon are told, too.
    That one is told as of the time of the sweep: all hosts have one time then, and as many samples
    in a slot. Samples beside one that was given some are left out: so each has all gauges, and none
    is told twice. Where a source stops to tell, samples without its gauges remain. Samples that
    are farther apart than ``near`` seconds have nothing to do with each other.
    """
    rows = _by_host(samples)
    given = _given(rows, more, near)
    known = _times_of(rows, given)
    hosts = samples.hosts
    kept = [
        row in given or not _is_near(time, known.get(hosts[host], []), near)
        for row, (host, time) in enumerate(zip(samples.host, samples.time))
    ]
    columns = {}
    for name in more.gauge_names():
        column, theirs = samples.gauge(name), more.gauge(name)
        for row, their_row in given.items():
            if math.isnan(column[row]):
                column[row] = theirs[their_row]
        columns[name] = array("d", column)
    times = array("d", samples.time)
    for row, their_row in given.items():
        times[row] = more.time[their_row]
    kept = [own and countable(time) for own, time in zip(kept, times)]
    inside = {name: array("d", compress(column, kept)) for name, column in columns.items()}
    return samples.where(kept).at(array("d", compress(times, kept)), inside)


def _by_host(samples: SampleTable) -> Mapping[str, _Rows]:
    """The times of each host, and their rows."""
    hosts = samples.hosts
    found: dict[str, _Rows] = defaultdict(lambda: ([], []))
    for row, (host, time) in enumerate(zip(samples.host, samples.time)):
        if countable(time):
            times, rows = found[hosts[host]]
            times.append(time)
            rows.append(row)
    return found


def _given(rows: Mapping[str, _Rows], more: SampleTable, near: float) -> dict[int, int]:
    """By row that is given gauges, the row of ``more`` that gives them."""
    hosts, found = more.hosts, dict[int, int]()
    for number, (host, time) in enumerate(zip(more.host, more.time)):
        if hosts[host] in rows and countable(time):
            times, own = rows[hosts[host]]
            nearest = _nearest(times, time)
            beside = [nearest, *(at for at in (nearest + 1, nearest - 1) if 0 <= at < len(own))]
            free = [at for at in beside if own[at] not in found] or [nearest]
            if abs(times[free[0]] - time) <= near:
                found[own[free[0]]] = number
    return found


def _times_of(rows: Mapping[str, _Rows], given: Mapping[int, int]) -> dict[str, list[float]]:
    return {
        host: [time for time, row in zip(times, own) if row in given]
        for host, (times, own) in rows.items()
    }


def _is_near(time: float, times: Sequence[float], near: float) -> bool:
    return bool(times) and abs(times[_nearest(times, time)] - time) <= near


def _nearest(times: Sequence[float], time: float) -> int:
    """The place of the time that is nearest; ``times`` are sorted, and not empty."""
    after = bisect_left(times, time)
    around = (place for place in (after - 1, after) if 0 <= place < len(times))
    return min(around, key=lambda place: abs(times[place] - time))
