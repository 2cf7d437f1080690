# SPDX-License-Identifier: Apache-2.0
"""From samples to arrays: how much each host counted in each slot of a window.

The growth of a counter between two samples of one boot, in the order of the host's own uptime,
belongs to the slot of the middle of their two times. The controller's times do not order them:
two sweeps can overlap, and the one that read first end last.

Stored samples may be damaged. A number that no host can count is as one that was not read, a sample
without a time or an uptime is left out, and so is one that is stored twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from edgetune.agent.vocabulary.buckets import BUCKET, bucket_name
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.metric import READINGS, REQUESTS, SECONDS, Histogram, Metric
from edgetune.base.documents.table import LARGEST, SampleTable
from edgetune.base.errors import InputError
from edgetune.intent.metrics.catalogue import PACKETS
from edgetune.judge.measured_share import Coverage, join_coverages
from edgetune.judge.quantiles import bounds_of, mean_of, quantile

REBOOTED = "rebooted"
"""The flaw of a host with more than one boot in the window."""
_NUMBERS_AT_ONCE = 8_000_000
"""Of an array of buckets by slots."""
_AT_ONCE = 2.0
"""Seconds between two readings of one host that may have overlapped, on a host that is busy."""
_WHOLE = 0.5
"""Requests: buckets that differ by more from all there were are of another moment."""

Array = Any


@dataclass(frozen=True)
class Series:
    """One metric, both of shape (hosts, slots), both NaN where either is unknown.

    ``events`` is the growth of its counters, or the sum of a gauge's readings; ``exposure`` is
    that of the counter it is compared per, or seconds, or the number of readings. Of a histogram
    they are the quantile of each slot that has enough requests, and 1.
    """

    events: Array
    exposure: Array


@dataclass(frozen=True)
class Requests:
    """Those of each host in each bucket of a histogram, shape (hosts, spans, buckets); ``middles``
    are the times of the spans."""

    middles: tuple[float, ...]
    counts: Array


@dataclass(frozen=True)
class Window:
    """What hosts counted over ``start`` < time <= ``end``, in slots of ``slot`` seconds.

    ``exposures`` says what each metric is compared per (a counter, SECONDS, READINGS), ``packets``
    what hosts received per second (hosts, slots; NaN unknown), ``samples`` in how many slots a
    host was sampled, ``newest`` the time of its last sample with ``start`` <= time <= ``end`` (NaN
    if none), and ``flaws`` what is wrong with a host's counters, in words: the first that was met,
    or REBOOTED. ``coverage`` says in how much of the window each metric was measured, ``boots``
    the boots in which a host was sampled first and last; a host without samples is not in it.
    ``histograms`` are by reading.
    """

    hosts: tuple[str, ...]
    start: float
    end: float
    slot: float
    metrics: Mapping[str, Series]
    exposures: Mapping[str, str]
    packets: Array
    samples: Array
    newest: Array
    flaws: Mapping[str, str]
    coverage: Coverage
    boots: Mapping[str, tuple[str, str]]
    histograms: Mapping[str, Requests] = field(default_factory=dict)


def read_window(
    samples: SampleTable,
    hosts: Sequence[str],
    start: float,
    end: float,
    slot: float,
    metrics: Mapping[str, Metric],
    exposures: Mapping[str, str] | None = None,
    booted_since: float | None = None,
) -> Window:
    """The metrics of the hosts over a window; other hosts' samples are left aside.

    ``samples`` may be in any order and reach beyond both ends, so that what grew over a border is
    known. Without ``exposures`` a metric is compared per packet only if every host with samples
    counts packets; a soak is given its baseline's. Boots are listed from ``booted_since`` on, which
    may lie before ``start``. InputError: a window that makes no sense.
    """
    _check(hosts, start, end, slot)
    table = _Table(samples, hosts)
    steps = _Steps(table, start, end, slot, _slack(metrics))
    since = start if booted_since is None else booted_since
    used = {name: (exposures or {}).get(name) or _exposure(table, m) for name, m in metrics.items()}
    seconds = steps.seconds()
    with np.errstate(divide="ignore", invalid="ignore"):
        packets = np.where(seconds > 0, steps.grown(PACKETS) / seconds, np.nan)
    parts = [part for metric in metrics.values() for part in metric.quantiles]
    buckets = {of: _Buckets(steps, of, parts) for of in {part.of for part in parts}}
    series = {
        name: _quantile(m, buckets) if m.quantiles else _series(steps, m, used[name], seconds)
        for name, m in metrics.items()
    }
    inside = (table.time >= start) & (table.time <= end)
    newest = np.full(len(hosts), -np.inf)
    np.maximum.at(newest, table.host[inside], table.time[inside])
    return Window(
        hosts=tuple(hosts),
        start=start,
        end=end,
        slot=slot,
        metrics=series,
        exposures=used,
        packets=packets,
        samples=steps.sampled(inside),
        newest=np.where(np.isfinite(newest), newest, np.nan),
        flaws={**dict.fromkeys(_rebooted(table, since, end), REBOOTED), **steps.flaws()},
        coverage=_coverage(steps, metrics, series, used, seconds, buckets),
        boots=_boots(table, since, end),
        histograms={of: counted.requests for of, counted in buckets.items()},
    )


def join(windows: Sequence[Window]) -> Window:
    """Windows that follow each other, of the same hosts and metrics, as one.

    A sample on a border counts in both.
    """
    first, last = windows[0], windows[-1]
    flaws: dict[str, str] = {}
    boots: dict[str, tuple[str, str]] = {}
    for window in windows:
        flaws = {**window.flaws, **flaws}
        for host, (begun, ended) in window.boots.items():
            boots[host] = (boots.get(host, (begun,))[0], ended)
    return Window(
        hosts=first.hosts,
        start=first.start,
        end=last.end,
        slot=first.slot,
        metrics={name: _joined([w.metrics[name] for w in windows]) for name in first.metrics},
        exposures=first.exposures,
        packets=np.concatenate([window.packets for window in windows], axis=1),
        samples=np.sum([window.samples for window in windows], axis=0),
        newest=np.fmax.reduce([window.newest for window in windows]),
        flaws=flaws,
        coverage=join_coverages([window.coverage for window in windows]),
        boots=boots,
        histograms={
            of: _joined_requests([window.histograms[of] for window in windows])
            for of in first.histograms
        },
    )


def _joined(parts: Sequence[Series]) -> Series:
    events, exposure = ([getattr(p, name) for p in parts] for name in ("events", "exposure"))
    return Series(np.concatenate(events, axis=1), np.concatenate(exposure, axis=1))


def _joined_requests(parts: Sequence[Requests]) -> Requests:
    middles = tuple(middle for part in parts for middle in part.middles)
    return Requests(middles, np.concatenate([part.counts for part in parts], axis=1))


def _slack(metrics: Mapping[str, Metric]) -> dict[str, float]:
    """By how much counters may fall without having been reset."""
    return {name: most for metric in metrics.values() for name, most in metric.unsteady.items()}


def _check(hosts: Sequence[str], start: float, end: float, slot: float) -> None:
    if not hosts:
        raise InputError("window", "hosts", "there are none")
    if not (math.isfinite(start) and math.isfinite(end) and start < end):
        raise InputError("window", "start", f"times out of order: {start} to {end}")
    if not (math.isfinite(slot) and slot > 0):
        raise InputError("window", "slot", f"is {slot}")


class _Table:
    """The samples of the hosts as arrays, sorted by host, boot and uptime."""

    def __init__(self, samples: SampleTable, hosts: Sequence[str]) -> None:
        self.hosts, self.boots = hosts, samples.boots
        self._samples = samples
        self._gauges: dict[str, Array] = {}
        number = {host: index for index, host in enumerate(hosts)}
        numbers = np.array([number.get(host, -1) for host in samples.hosts], dtype=int)
        host, boot = numbers[np.asarray(samples.host)], np.asarray(samples.boot)
        time, uptime = _known(samples.time), _known(samples.uptime)
        self._order = _in_order(host, boot, uptime, time)
        self.host, self.boot = host[self._order], boot[self._order]
        self.time, self.uptime = time[self._order], uptime[self._order]

    def counter(self, name: str) -> Array:
        """NaN where it was not read."""
        return _known(self._samples.counter(name))[self._order]

    def gauge(self, name: str) -> Array:
        """NaN where it was not read."""
        if name not in self._gauges:
            self._gauges[name] = _known(self._samples.gauge(name))[self._order]
        return self._gauges[name]

    def buckets(self, histogram: str) -> list[int]:
        """The numbers of its buckets that any sample has."""
        begin = histogram + BUCKET
        names = (name for name in self._samples.counter_names() if name.startswith(begin))
        return sorted(int(number) for name in names if (number := name[len(begin) :]).isdecimal())

    def mean(self, weights: Mapping[str, float]) -> Array:
        """A gauge; of several, the geometric mean by their weights, NaN where one was not read.

        What is 0 has no logarithm, and is as one that was not read.
        """
        if len(weights) == 1:
            return self.gauge(*weights)
        columns = {name: self.gauge(name) for name in weights}
        logs = [
            weight * np.log(np.where(columns[name] > 0, columns[name], np.nan))
            for name, weight in weights.items()
        ]
        return np.exp(np.sum(logs, axis=0))


def _in_order(host: Array, boot: Array, uptime: Array, time: Array) -> Array:
    """The order of samples of hosts (-1 for others) at known times; the second of two with one
    host, boot, uptime and time is left out."""
    which = np.flatnonzero((host >= 0) & np.isfinite(time) & np.isfinite(uptime))
    # Samples are mostly read in the order of time: then to sort by host is enough.
    small = host[which].astype(np.min_scalar_type(host.max(initial=0)))
    order = which[np.argsort(small, kind="stable")]
    columns = (host, boot, uptime, time)
    if not _are_sorted([column[order] for column in columns]):
        order = which[np.lexsort([column[which] for column in columns[::-1]])]
    fresh = np.zeros(len(order), dtype=bool)
    fresh[:1] = True
    for column in columns:
        fresh[1:] |= np.diff(column[order]) != 0
    return order[fresh]


def _are_sorted(columns: Sequence[Array]) -> bool:
    """Whether rows are sorted by the first column, then by the next."""
    tied: Array | bool = True
    for column in columns:
        change = np.diff(column)
        if np.any(tied & (change < 0)):
            return False
        tied = tied & (change == 0)
    return True


def _known(values: Sequence[float]) -> Array:
    """NaN for each that is none that can be counted."""
    numbers = np.asarray(values)
    return np.where((numbers >= 0) & (numbers <= LARGEST), numbers, np.nan)


class _Steps:
    """What happened between samples that follow each other in one boot, put into slots."""

    def __init__(
        self, table: _Table, start: float, end: float, slot: float, slack: Mapping[str, float]
    ) -> None:
        self._table, self._slack = table, slack
        self._start, self._end, self._slot = start, end, slot
        # Times of day have an error of 1e-7 s: no slot more for it.
        self.shape = (len(table.hosts), max(1, math.ceil((end - start) / slot - 1e-6)))
        same = (np.diff(table.host) == 0) & (np.diff(table.boot) == 0)
        middle = (table.time[1:] + table.time[:-1]) / 2
        self._at = np.flatnonzero(same & (middle > start) & (middle <= end))
        self._middle = middle[self._at]
        self._cell = self._cells(table.host[self._at], self._middle)
        self._grown: dict[str, Array] = {}
        self._flaws: list[tuple[float, str, str]] = []

    def seconds(self) -> Array:
        """For how long each host was watched in each slot, shape (hosts, slots); NaN if not."""
        return self._filled(self._cell, self._changed(self._table.uptime))

    def grown(self, counter: str) -> Array:
        """How much a counter grew, shape (hosts, slots); NaN where it is unknown in any step."""
        if counter not in self._grown:
            self._grown[counter] = self._filled(self._cell, self._growth(counter))
        return self._grown[counter]

    def _changed(self, column: Array) -> Array:
        return column[self._at + 1] - column[self._at]

    def _growth(self, counter: str) -> Array:
        """How much a counter grew in every step; NaN, and a flaw of the host, where it fell."""
        column = self._table.counter(counter)
        grown = self._changed(column)
        slack = self._slack.get(counter, 0.0)
        # Of two agents that read at once one may have looked at the clock last; after a reset
        # less is left.
        at_once = self._changed(self._table.uptime) < _AT_ONCE
        at_once &= column[self._at + 1] > column[self._at] / 2
        grown = np.where((grown < 0) & ((grown >= -slack) | at_once), 0.0, grown)
        fell = grown < 0
        for step in np.flatnonzero(fell):
            at = self._at[step]
            host = self._table.hosts[self._table.host[at]]
            old, new = column[at], column[at + 1]
            wrapped = 2**31 <= old < 2**32 and new < 2**31
            how = "it wrapped at 32 bits" if wrapped else "it was reset"
            text = f"{counter} fell from {old:.0f} to {new:.0f}: {how}"
            self._flaws.append((self._middle[step], host, text))
        return np.where(fell, np.nan, grown)

    def bucket_growth(self, histogram: str, number: int) -> Array:
        """How much a bucket grew in every step; one that a sample lacks was empty."""
        column = self._table.counter(bucket_name(histogram, number))
        return self._changed(np.where(np.isnan(column), 0.0, column))

    def buckets(self, histogram: str) -> list[int]:
        """The numbers of its buckets that any sample has."""
        return self._table.buckets(histogram)

    def known_seconds(self, known: Array) -> Array:
        """The time of the steps that are ``known``, shape (hosts,)."""
        seconds = np.where(known, self._changed(self._table.uptime), 0.0)
        return np.bincount(self._table.host[self._at], weights=seconds, minlength=self.shape[0])

    def growth(self, counter: str) -> Array:
        """How much a counter grew in every step; NaN where that is not known."""
        return self._growth(counter)

    def parts(self, width: int) -> Iterator[tuple[slice, Array, Array]]:
        """Some hosts at a time, so that an array of ``width`` for each of their slots stays small:
        which hosts, which steps are theirs, and the cell of each of these among theirs."""
        many = max(1, _NUMBERS_AT_ONCE // (width * self.shape[1]))
        of_host = self._table.host[self._at]
        for first in range(0, self.shape[0], many):
            last = min(first + many, self.shape[0])
            steps = np.flatnonzero((of_host >= first) & (of_host < last))
            yield slice(first, last), steps, self._cell[steps] - first * self.shape[1]

    def middles(self) -> tuple[float, float]:
        """Of the first and the second half of the slots."""
        half = self.shape[1] // 2
        ends = (self._start, self._start + self._slot * half, self._end)
        return (ends[0] + ends[1]) / 2, (ends[1] + ends[2]) / 2

    def flaws(self) -> dict[str, str]:
        """The first flaw of each host, of the counters read so far."""
        return {host: text for _, host, text in sorted(self._flaws, reverse=True)}

    def readings(self, gauges: Mapping[str, float]) -> Series:
        """The readings of a gauge by slot, or of the mean of several (see ``Metric``)."""
        column, time = self._table.mean(gauges), self._table.time
        read = ~np.isnan(column) & (time > self._start) & (time <= self._end)
        cell = self._cells(self._table.host[read], time[read])
        return Series(self._filled(cell, column[read]), self._filled(cell, np.ones(len(cell))))

    def sampled(self, which: Array) -> Array:
        """In how many slots each host has at least one of these samples, shape (hosts,)."""
        cells = self._cells(self._table.host[which], self._table.time[which])
        counts = np.bincount(cells, minlength=self.shape[0] * self.shape[1])
        return np.count_nonzero(counts.reshape(self.shape), axis=1)

    def share_read(self, gauges: Mapping[str, float]) -> Array:
        """In which share of its samples in the window each host has all of these; 0 without any."""
        table = self._table
        inside = (table.time > self._start) & (table.time <= self._end)
        read = inside & ~np.isnan(table.mean(gauges))
        counts = [np.bincount(table.host[of], minlength=self.shape[0]) for of in (read, inside)]
        return counts[0] / np.maximum(counts[1], 1)

    def _cells(self, host: Array, time: Array) -> Array:
        slot = np.ceil((time - self._start) / self._slot).astype(int) - 1
        return host * self.shape[1] + np.clip(slot, 0, self.shape[1] - 1)

    def _filled(self, cell: Array, values: Array) -> Array:
        size = self.shape[0] * self.shape[1]
        sums = np.bincount(cell, weights=values, minlength=size)
        known = np.bincount(cell, minlength=size) > 0
        return np.where(known, sums, np.nan).reshape(self.shape)


class _Buckets:
    """What the bucket counters of one reading tell: the ``values`` of its ``quantiles`` by slot,
    all ``requests``, and for how many seconds each host is ``known``.

    A step is known where the counter of all requests and its buckets grew, by as much together.
    """

    def __init__(self, steps: _Steps, of: str, quantiles: Sequence[Histogram]) -> None:
        asked = {_key(part): part for part in quantiles if part.of == of}
        width = len(bounds_of(next(iter(asked.values()))))
        numbers = [number for number in steps.buckets(of) if number < width]
        total = steps.growth(of)
        grown = np.zeros((len(numbers), len(total)))
        for row, number in enumerate(numbers):
            grown[row] = steps.bucket_growth(of, number)
        known = np.isfinite(total) & (grown >= 0).all(axis=0)
        known &= np.abs(grown.sum(axis=0) - np.where(known, total, 0.0)) < _WHOLE
        self.known = steps.known_seconds(known)
        self.requests = Requests(steps.middles(), np.zeros((steps.shape[0], 2, width)))
        self.values = {key: np.full(steps.shape, np.nan) for key in asked}
        half = steps.shape[1] // 2
        for hosts, at, cells in steps.parts(width):
            shape = (hosts.stop - hosts.start, steps.shape[1])
            counts = np.zeros((*shape, width))
            at, cells = at[known[at]], cells[known[at]]
            for row, number in enumerate(numbers):
                each = np.bincount(cells, weights=grown[row, at], minlength=shape[0] * shape[1])
                counts[:, :, number] = each.reshape(shape)
            self.requests.counts[hosts, 0] = counts[:, :half].sum(axis=1)
            self.requests.counts[hosts, 1] = counts[:, half:].sum(axis=1)
            for key, part in asked.items():
                self.values[key][hosts] = quantile(counts, part)


def _key(part: Histogram) -> tuple[float, float]:
    """What tells the quantiles of one reading apart."""
    return part.quantile, part.resolution


def _quantile(metric: Metric, buckets: Mapping[str, _Buckets]) -> Series:
    """A quantile by slot, or the mean of several."""
    parts = metric.quantiles
    values = [buckets[part.of].values[_key(part)] for part in parts]
    level = mean_of(values, [part.weight for part in parts])
    return Series(level, np.where(np.isnan(level), np.nan, 1.0))


def _exposure(table: _Table, metric: Metric) -> str:
    """What a metric is compared per, as far as the samples allow."""
    if metric.quantiles:
        return REQUESTS
    if metric.gauges:
        return READINGS
    if metric.per_if_known:
        known = ~np.isnan(table.counter(metric.per_if_known))
        if np.array_equal(np.unique(table.host[known]), np.unique(table.host)):
            return metric.per_if_known
    return metric.per or SECONDS


def _series(steps: _Steps, metric: Metric, exposure: str, seconds: Array) -> Series:
    if metric.gauges:
        return steps.readings(metric.gauges)
    events = sum(map(steps.grown, metric.counters)) - sum(map(steps.grown, metric.less))
    base = seconds if exposure == SECONDS else steps.grown(exposure)
    # More requests within a bound than there were: a source that read both at two moments.
    unknown = np.isnan(events) | np.isnan(base) | (events < 0)
    return Series(np.where(unknown, np.nan, events), np.where(unknown, np.nan, base))


def _coverage(
    steps: _Steps,
    metrics: Mapping[str, Metric],
    series_of: Mapping[str, Series],
    exposures: Mapping[str, str],
    seconds: Array,
    buckets: Mapping[str, _Buckets],
) -> Coverage:
    """``seconds`` (hosts, slots) are those between samples of one boot."""
    watched = np.nansum(seconds, axis=1)
    known, unread = {}, {}
    for name, series in series_of.items():
        metric = metrics[name]
        if metric.quantiles:
            each = {quantile.of: buckets[quantile.of].known for quantile in metric.quantiles}
            known[name] = np.minimum.reduce([*each.values()])
            unread.update({of: watched - seconds for of, seconds in each.items()})
            continue
        if metric.gauges:
            known[name] = watched * steps.share_read(metric.gauges)
            for gauge in metric.gauges:
                unread[gauge] = watched * (1 - steps.share_read({gauge: 1.0}))
            continue
        known[name] = np.nansum(np.where(np.isnan(series.events), 0.0, seconds), axis=1)
        for counter in {*metric.counters, *metric.less, exposures[name]} - {SECONDS}:
            read = np.where(np.isnan(steps.grown(counter)), 0.0, seconds)
            unread[counter] = watched - np.nansum(read, axis=1)
    return Coverage(watched, known, unread)


def _boots(table: _Table, start: float, end: float) -> dict[str, tuple[str, str]]:
    """The boots of each host's first and last sample in the window."""
    inside = np.flatnonzero((table.time > start) & (table.time <= end))
    in_time = inside[np.argsort(table.time[inside], kind="stable")]
    first, last = np.zeros((2, len(table.hosts)), dtype=int)
    # Of several values for one place the last one stays.
    first[table.host[in_time[::-1]]] = table.boot[in_time[::-1]]
    last[table.host[in_time]] = table.boot[in_time]
    return {
        table.hosts[host]: (table.boots[first[host]], table.boots[last[host]])
        for host in np.unique(table.host[inside]).tolist()
    }


def _rebooted(table: _Table, start: float, end: float) -> list[str]:
    """Hosts with more than one boot in the window."""
    inside = (table.time > start) & (table.time <= end)
    host, boot = table.host[inside], table.boot[inside]
    changes = (np.diff(host) == 0) & (np.diff(boot) != 0)
    return [table.hosts[number] for number in np.unique(host[1:][changes]).tolist()]
