# SPDX-License-Identifier: Apache-2.0
"""Samples of PoPs, wherever they are kept: in our store, or by what measured them.

Each source of a PoP has a series of its own. That of its second source is in the store under
``POP:1``, which is the name of no PoP, and so on.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import compress
from operator import sub
from statistics import median
from typing import Callable

from edgetune.base import clock
from edgetune.base.documents.sample import Sample
from edgetune.base.documents.table import SampleTable, countable
from edgetune.base.errors import EdgetuneError
from edgetune.net.metrics.samples import Limit, Samples
from edgetune.net.metrics.source import SOON, MetricSource, RememberingSource, thinned
from edgetune.site.inventory import Inventory, Pop

NEAR = 150.0
"""Seconds between samples of two sources that become one: half of the longest time between two
scrapes for which Prometheus still knows a value."""

_LATE = 1.5
"""A sample is moved to another time by so many times their spacing at most: in a hole of scrapes
nothing was counted."""

_Rows = tuple[list[float], list[int]]


def attached(samples: SampleTable, more: SampleTable, near: float = NEAR) -> SampleTable:
    """The samples, oldest first, with the gauges of ``more`` that they lack.

    Each sample of ``more`` gives its gauges to the nearest one of the same host, or to the one
    beside that where another is nearer: sweeps that follow each other soon are kept, too. That one
    is moved to the time of the sweep: hosts have one time then, and as many samples in a slot.
    No sample takes what is the nearest of another one, and the order of both stays. So a sweep in a
    hole of the samples is left out, and moves none of those behind it.

    Samples beside one that was given some are left out: so each has all gauges, and none counts
    twice. Where a source goes silent, samples without its gauges remain. Samples that are farther
    apart than ``near`` seconds, or than a host's own are from each other, have nothing to do with
    each other.
    """
    rows = _by_host(samples)
    given = _given(rows, more, near)
    known = {
        host: [time for time, row in zip(times, of_host) if row in given]
        for host, (times, of_host) in rows.items()
    }
    hosts = samples.hosts
    kept = [
        row in given or not (taken and abs(taken[_nearest(taken, time)] - time) <= near)
        for row, (host, time) in enumerate(zip(samples.host, samples.time))
        for taken in [known.get(hosts[host], [])]
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
    kept = [is_kept and countable(time) for is_kept, time in zip(kept, times)]
    inside = {name: array("d", compress(column, kept)) for name, column in columns.items()}
    return samples.where(kept).at(array("d", compress(times, kept)), inside)


def _by_host(samples: SampleTable) -> Mapping[str, _Rows]:
    """The times of each host, and their rows."""
    hosts = samples.hosts
    by_host: dict[str, _Rows] = defaultdict(lambda: ([], []))
    for row, (host, time) in enumerate(zip(samples.host, samples.time)):
        if countable(time):
            times, rows = by_host[hosts[host]]
            times.append(time)
            rows.append(row)
    return by_host


def _given(rows: Mapping[str, _Rows], more: SampleTable, near: float) -> dict[int, int]:
    """By row that is given gauges, the row of ``more`` that gives them."""
    given = dict[int, int]()
    for host, (swept, their_rows) in _by_host(more).items():
        times, ours = rows.get(host, ([], []))
        spacing = median(map(sub, times[1:], times)) if len(times) > 1 else math.inf
        places = _Places(times, swept, min(near, _LATE * spacing))
        given.update((ours[place], their_rows[number]) for place, number in places.holder.items())
    return given


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


def _nearest(times: Sequence[float], time: float) -> int:
    """The place of the time that is nearest; ``times`` are sorted, and not empty."""
    after = bisect_left(times, time)
    around = (place for place in (after - 1, after) if 0 <= place < len(times))
    return min(around, key=lambda place: abs(times[place] - time))


_AT_ONCE, _MOST_THREADS = 8, 128
"""Questions that one server has at once, and all of them. A server that hangs takes its own."""

_Read = Callable[[float, float], SampleTable]
_Queue = deque[tuple[str, "Pop", RememberingSource]]


class PopSamples:
    """The samples of the sources of each PoP of an inventory; ``opened`` gives a source by name.

    All raise StoreError if the store fails, and SourceError if a source that remembers does. Of a
    PoP that the inventory has lost, the store tells what there is.
    """

    def __init__(
        self,
        stored: Samples,
        inventory: Callable[[], Inventory],
        opened: Callable[[str], MetricSource],
    ) -> None:
        self._stored, self._inventory, self._opened = stored, inventory, opened

    def add(self, pop: str, samples: Sequence[Sample], number: int = 0) -> None:
        """Keep those of the source of that number, unless it remembers them itself.

        Only the first source gives counters.
        """
        view = self._views(pop)[number]
        if view and self._remembering(view):
            return
        if number:
            samples = [replace(sample, counters={}) for sample in samples]
        self._stored.add(_series(pop, number), samples)

    def window(self, pop: str, start: float, end: float) -> SampleTable:
        """All with start <= time <= end, oldest first, without those that are damaged.

        Gauges of further sources are attached to the samples of the first one.
        """
        return self._joined(
            pop,
            lambda source, view: source.window(view, start, end),
            lambda read: read(start, end),
            NEAR,
        )

    def thinned(
        self, pop: str, start: float, end: float, step: float, before: float
    ) -> SampleTable:
        """Those of ``window`` that a picture needs with a slot of each ``step`` seconds: some in
        the ``before`` seconds until each border of a slot, at least. ``step`` is longer.

        A gauge of a further source is attached to a sample of the same border.
        """
        return self._joined(
            pop,
            lambda source, view: source.thinned(view, start, end, step, before),
            lambda read: thinned(read, start, end, step, before),
            min(NEAR, step / 3),
        )

    def newest(self, pops: Sequence[str]) -> dict[str, float]:
        """When each PoP was sampled last, in epoch seconds; none of a PoP without a sample."""
        views = {pop: view for pop in pops if (view := self._views(pop)[0])}
        sources = {pop: self._remembering(view) for pop, view in views.items()}
        stored = self._stored.newest([pop for pop in pops if not sources.get(pop)])
        newest = {pop: source.newest(views[pop]) for pop, source in sources.items() if source}
        return {**stored, **{pop: time for pop, time in newest.items() if time is not None}}

    def newest_known(self, pops: Sequence[str]) -> tuple[dict[str, float], dict[str, str]]:
        """The same, and by PoP why its source does not tell.

        That hides no other PoP, and keeps none of another server waiting. After SOON seconds no
        more is asked: all is answered within about twice as long.
        """
        servers: dict[str, _Queue] = {}
        for pop in pops:
            view = self._views(pop)[0]
            source = view and self._remembering(view)
            if view and source:
                url = str(view.metrics.fields.get("url", pop))
                servers.setdefault(url, deque()).append((pop, view, source))
        remembered = {pop for queue in servers.values() for pop, *_ in queue}
        newest, lost = self.newest([pop for pop in pops if pop not in remembered]), dict[str, str]()
        ends = clock.monotonic() + SOON
        # The first thread of each server comes before the second one of any.
        turns = [
            turn for number in range(_AT_ONCE) for turn in servers.values() if number < len(turn)
        ]
        with ThreadPoolExecutor(_MOST_THREADS) as threads:
            [*threads.map(lambda queue: _ask(queue, ends, newest, lost), turns)]
        return newest, lost

    def limit(self) -> Limit | None:
        """What the store may hold in all."""
        return self._stored.limit()

    def stored_series(self, pop: str) -> int:
        """How many series of samples of a PoP are in the store."""
        return sum(not (view and self._remembering(view)) for view in self._views(pop))

    def _joined(
        self,
        pop: str,
        asked: Callable[[RememberingSource, Pop], SampleTable],
        stored: Callable[[_Read], SampleTable],
        near: float,
    ) -> SampleTable:
        """What is asked of each source that remembers, or is made of what the store has of another
        one: the first one's, with the gauges of the others."""
        every = []
        for number, view in enumerate(self._views(pop)):
            source = view and self._remembering(view)
            if view and source:
                every.append(asked(source, view))
            else:
                every.append(stored(partial(self._stored.window, _series(pop, number))))
        first, *others = every
        for more in others:
            first = attached(first, more, near)
        return first

    def _views(self, pop: str) -> Sequence[Pop | None]:
        inventory = self._inventory()
        return inventory.pop(pop).views if pop in inventory.pop_names() else [None]

    def _remembering(self, view: Pop) -> RememberingSource | None:
        source = self._opened(view.metrics.source)
        return source if isinstance(source, RememberingSource) else None


def _ask(queue: _Queue, ends: float, known: dict[str, float], lost: dict[str, str]) -> None:
    """Ask when PoPs were measured last until none is in the queue of their server; of those that
    are there at ``ends`` nothing is known."""
    while True:
        try:
            pop, view, source = queue.popleft()
        except IndexError:  # another thread took the last one
            return
        if clock.monotonic() > ends:
            lost[pop] = f"{pop}: its metric source was busy with other PoPs, and was not asked"
            continue
        try:
            newest = source.newest(view)
        except EdgetuneError as error:
            lost[pop] = str(error)
        else:
            known.update({} if newest is None else {pop: newest})


def _series(pop: str, number: int) -> str:
    return f"{pop}:{number}" if number else pop
