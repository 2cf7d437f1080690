# SPDX-License-Identifier: Apache-2.0
"""One series of samples of what two sources told of the same hosts."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import compress
from operator import sub
from statistics import median

from edgetune.base.documents.table import SampleTable, countable

NEAR = 150.0
"""Seconds between samples of two sources that are told as one: half of the longest time between two
scrapes for which Prometheus still knows a value."""

_LATE = 1.5
"""A sample is told as of another time by so many times their spacing at most: in a hole of scrapes
nothing was counted."""

_Rows = tuple[list[float], list[int]]


def attached(samples: SampleTable, more: SampleTable, near: float = NEAR) -> SampleTable:
    """The samples, oldest first, with the gauges of ``more`` that they lack.

    Each sample of ``more`` gives its gauges to the nearest one of the same host, or to the one
    beside that where another is nearer: sweeps that follow each other soon are told, too. That one
    is told as of the time of the sweep: hosts have one time then, and as many samples in a slot.
    No sample takes what is the nearest of another one, and the order of both stays. So a sweep in a
    hole of the samples is left out, and moves none of those behind it.

    Samples beside one that was given some are left out: so each has all gauges, and none is told
    twice. Where a source stops to tell, samples without its gauges remain. Samples that are farther
    apart than ``near`` seconds, or than a host's own are from each other, have nothing to do with
    each other.
    """
    rows = _by_host(samples)
    given = _given(rows, more, near)
    known = {
        host: [time for time, row in zip(times, own) if row in given]
        for host, (times, own) in rows.items()
    }
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
    found = dict[int, int]()
    for host, (swept, their_rows) in _by_host(more).items():
        times, own = rows.get(host, ([], []))
        spacing = median(map(sub, times[1:], times)) if len(times) > 1 else math.inf
        places = _Places(times, swept, min(near, _LATE * spacing))
        found.update((own[place], their_rows[number]) for place, number in places.holder.items())
    return found


class _Places:
    """Which place among ``times`` each of ``swept`` has, both sorted; ``holder`` has it by place.

    None is farther than ``reach`` from its place.
    """

    def __init__(self, times: Sequence[float], swept: Sequence[float], reach: float) -> None:
        self._times, self._swept, self._reach = times, swept, reach
        self.holder: dict[int, int] = {}
        nearest = [_nearest(times, time) for time in swept] if times else []
        for number, place in enumerate(nearest):
            other = self.holder.get(place)
            if self._reaches(number, place) and (
                other is None or self._apart(number, place) < self._apart(other, place)
            ):
                self.holder[place] = number
        self._place = {number: place for place, number in self.holder.items()}
        for number, place in enumerate(nearest):
            if number not in self._place and place in self.holder:
                self._squeeze_in(number, place)

    def _squeeze_in(self, number: int, place: int) -> None:
        """Take a free place beside the nearest one, or let its holder go there."""
        holder = self.holder[place]
        side = -1 if number < holder else 1
        if any(between in self._place for between in range(number - side, holder, -side)):
            return
        if self._is_free(number, place + side):
            self._put(number, place + side)
        elif self._reaches(number, place) and self._is_free(holder, place - side):
            self._put(holder, place - side)
            self._put(number, place)

    def _put(self, number: int, place: int) -> None:
        self.holder[place], self._place[number] = number, place

    def _is_free(self, number: int, place: int) -> bool:
        inside = 0 <= place < len(self._times)
        return inside and place not in self.holder and self._reaches(number, place)

    def _reaches(self, number: int, place: int) -> bool:
        return self._apart(number, place) <= self._reach

    def _apart(self, number: int, place: int) -> float:
        return abs(self._times[place] - self._swept[number])


def _is_near(time: float, times: Sequence[float], near: float) -> bool:
    return bool(times) and abs(times[_nearest(times, time)] - time) <= near


def _nearest(times: Sequence[float], time: float) -> int:
    """The place of the time that is nearest; ``times`` are sorted, and not empty."""
    after = bisect_left(times, time)
    around = (place for place in (after - 1, after) if 0 <= place < len(times))
    return min(around, key=lambda place: abs(times[place] - time))
