# SPDX-License-Identifier: Apache-2.0
"""From series of Prometheus to samples: a row for each scrape of each host.

A host was scraped when it gave its time of boot. What another exporter gave of it since the scrape
before, within ``LATE`` seconds, belongs to the same row.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from edgetune.agent.vocabulary.buckets import BUCKET, bucket_name, bucket_of
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.sample import boot_of, is_same_boot
from edgetune.base.documents.table import LARGEST, SampleTable
from edgetune.net.metrics.prometheus_client import Series
from edgetune.net.metrics.promql import Wanted

BOOT_TIME, BOOT_INFO = "node_boot_time_seconds", "edgetune_boot_info"
"""When a host booted, by its node_exporter; the kernel's id of that boot, by our agent."""
LATE = 60.0

ByName = Mapping[str, Sequence[Series]]
"""The series of one host, by name and ``Wanted.asked``."""
_Column = list[float]


class Contradiction(ValueError):
    """Two series tell the same of a host; the text names both."""


@dataclass
class Boot:
    """The boot in which a host was scraped last: its id in samples, the time of boot by which its
    uptime is counted, and the id that was ``reported`` last."""

    id: str
    began: float
    reported: str
    start: int = 0


@dataclass
class Scrapes:
    """Those of one host, oldest first. ``odd`` is a value that no host can count."""

    host: str
    times: _Column = field(default_factory=list)
    boots: list[str] = field(default_factory=list)
    uptime: _Column = field(default_factory=list)
    readings: dict[str, _Column] = field(default_factory=dict)
    odd: str = ""
    boot: Boot | None = None


def scrapes_of(
    host: str, series: ByName, wanted: Sequence[Wanted], start: float, before: Boot | None = None
) -> Scrapes:
    """The scrapes of a host from ``start`` on; ``before`` is its boot until then, if it is known.

    Contradiction where more than one series tells the same.
    """
    scrapes = Scrapes(host, boot=before)
    began = _one(series, (BOOT_TIME,), ())
    if not began:
        return scrapes
    pairs = zip(began[0].times, began[0].values)
    booted = {time: value for time, value in pairs if time >= start and 0 <= value <= LARGEST}
    scrapes.times = [*booted]
    segments = _segments([*booted.values()], _ids(series, scrapes.times), before)
    for boot, end in zip(segments, [*(each.start for each in segments[1:]), len(scrapes.times)]):
        if boot.id.startswith("@") and not (before and boot.id == before.id):
            # The agent may have given the id only later.
            boot.id = boot.reported
        scrapes.boots += [boot.id] * (end - boot.start)
        scrapes.uptime += [max(0.0, time - boot.began) for time in scrapes.times[boot.start : end]]
    scrapes.boot = segments[-1] if segments else before
    starts = [boot.start for boot in segments]
    for each in wanted:
        if each.native:
            scrapes.readings.update(_native(series, each, scrapes))
            continue
        column = _reading(series, each, scrapes, starts)
        if column:
            scrapes.readings[each.reading] = column
    for name in (each.reading for each in wanted if each.bound == math.inf):
        buckets = [bucket.reading for bucket in wanted if bucket.reading.startswith(name + BUCKET)]
        _unstack(scrapes.readings, name, buckets)
    return scrapes


def add_scrapes(
    table: SampleTable, every: Iterable[Scrapes], end: float, gauges: Collection[str]
) -> None:
    """Add those of many hosts with time < ``end``, in the order of their times.

    Readings that are no ``gauges`` are counters.
    """
    known = [*every]
    rows = sorted(
        (time, number, row)
        for number, scrapes in enumerate(known)
        for row, time in enumerate(scrapes.times)
        if time < end
    )
    names = dict.fromkeys(name for scrapes in known for name in scrapes.readings)
    columns = {name: [scrapes.readings.get(name) for scrapes in known] for name in names}
    readings = {
        name: array("d", [column_of[n][row] if column_of[n] else math.nan for _, n, row in rows])  # type: ignore[index]
        for name, column_of in columns.items()
    }
    table.add_columns(
        [known[number].host for _, number, _ in rows],
        [known[number].boots[row] for _, number, row in rows],
        array("d", [time for time, _, _ in rows]),
        array("d", [known[number].uptime[row] for _, number, row in rows]),
        {name: column for name, column in readings.items() if name not in gauges},
        {name: column for name, column in readings.items() if name in gauges},
    )


def _segments(booted: Sequence[float], ids: Sequence[str], before: Boot | None) -> list[Boot]:
    """The boots of a host, each from the row ``start`` on; the first may be that of ``before``."""
    boots: list[Boot] = []
    last = before
    for row, (began, identity) in enumerate(zip(booted, ids)):
        boot_id = boot_of(identity, began)
        if last is None or not is_same_boot(last.reported, boot_id):
            boots.append(Boot(boot_id, began, boot_id, row))
        elif not boots:
            boots.append(replace(last, start=0))
        last = boots[-1]
        last.reported = boot_id if identity else boot_of(last.reported.partition("@")[0], began)
    return boots


def _ids(of_host: ByName, times: Sequence[float]) -> list[str]:
    """The kernel's id of the boot at each scrape, "" where the agent gave none."""
    ids = [""] * len(times)
    for series in _one(of_host, (BOOT_INFO,), ("boot_id",)):
        identity = series.labels.get("boot_id", "").replace("@", "")
        for row, value in enumerate(_placed(series, times)):
            if not math.isnan(value):
                ids[row] = identity
    return ids


def _native(of_host: ByName, wanted: Wanted, scrapes: Scrapes) -> dict[str, _Column]:
    """The counters of a histogram whose samples have buckets: what one holds is in that bucket of
    ours in which its middle is. That of times from nothing on is the half of its end."""
    series = _one(of_host, wanted.series, wanted.added, wanted.asked)
    if not series or not series[0].buckets:
        return {}
    rows = {time: row for row, time in enumerate(scrapes.times)}
    unknown = [math.nan] * len(rows)
    counters = {wanted.reading: [*unknown]}
    for time, count, buckets in zip(series[0].times, series[0].values, series[0].buckets):
        row = rows.get(time)
        if row is None:
            continue
        if not (math.isfinite(count) and count >= 0):
            scrapes.odd = f"{series[0].name} has a count of {count:g}"
            continue
        counters[wanted.reading][row] = count
        for low, high, inside in buckets:
            middle = (math.sqrt(low * high) if low > 0 else max(high, 0.0) / 2) * wanted.scale
            column = counters.setdefault(bucket_name(wanted.reading, bucket_of(middle)), [*unknown])
            column[row] = inside + (0.0 if math.isnan(column[row]) else column[row])
    return counters


def _unstack(readings: dict[str, _Column], name: str, names: Sequence[str]) -> None:
    """Of a classic histogram each bucket holds those before it as well: take them out.

    A host that lacks a bucket has no histogram: what is in another one would be of both.
    """
    columns = [readings.pop(each, None) for each in names]
    total = readings.get(name)
    if total is None or not all(columns):
        readings.pop(name, None)
        return
    before: _Column = [0.0] * len(total)
    last = bucket_name(name, len(names))
    for each, column in zip([*names, last], [*columns, total]):
        inside = [value - less for value, less in zip(column or (), before)]
        readings[each] = [value if value >= 0 else math.nan for value in inside]
        before = column or before


def _with_bound(of_host: ByName, wanted: Wanted) -> ByName:
    """The series of one bucket among those of all."""
    if wanted.bound is None:
        return of_host
    names = [name + wanted.asked for name in wanted.series]
    return {
        name: [s for s in of_host.get(name, ()) if _is_bound(s.labels.get("le"), wanted.bound)]
        for name in names
    }


def _is_bound(text: str | None, bound: float) -> bool:
    try:
        return math.isclose(float(text or "nan"), bound, rel_tol=1e-9)
    except ValueError:
        return False


def _reading(of_host: ByName, wanted: Wanted, scrapes: Scrapes, starts: Sequence[int]) -> _Column:
    """One number for each scrape, NaN where it is not known; empty where it never is."""
    of_host = _with_bound(of_host, wanted)
    series, factor = _one(of_host, wanted.series, wanted.added, wanted.asked), wanted.scale
    if not series and wanted.within:
        # The other series holds these, too.
        series, factor = _one(of_host, (wanted.within,), wanted.added, wanted.asked), 0.0
    if not series:
        return []
    for each in series:
        if not (math.isfinite(sum(each.values)) and min(each.values, default=0.0) >= 0):
            odd = (value for value in each.values if not (math.isfinite(value) and value >= 0))
            scrapes.odd = f"{each.name} has {next(odd):g}"
    columns = [_placed(each, scrapes.times) for each in series]
    added = columns[0] if len(columns) == 1 else _added(columns, starts)
    return [value * factor if value >= 0 else math.nan for value in added]


def _added(columns: Sequence[_Column], starts: Sequence[int]) -> _Column:
    """The sums of columns. In each boot those that are known in it at all have to be known."""
    sums: _Column = []
    for start, end in zip(starts, [*starts[1:], len(columns[0])]):
        parts = [column[start:end] for column in columns]
        members = [part for part in parts if not all(map(math.isnan, part))]
        sums += map(sum, zip(*members)) if members else [math.nan] * (end - start)
    return sums


def _placed(series: Series, times: Sequence[float]) -> _Column:
    """The values of a series at each of the times at which the host was scraped."""
    first = bisect_left(series.times, times[0]) if times else 0
    if series.times[first:] == times:
        return [*series.values[first:]]
    values = [math.nan] * len(times)
    for time, value in zip(series.times, series.values):
        row = bisect_left(times, time)
        if row < len(times) and times[row] - time < LATE:
            values[row] = value
    return values


def _one(
    of_host: ByName, names: Sequence[str], added: Sequence[str], asked: str = ""
) -> Sequence[Series]:
    """The series of that name which the host has; Contradiction where they tell the same twice."""
    there = [name for name in names if of_host.get(name + asked)]
    if len(there) > 1:
        raise Contradiction(f"{there[0]} and {there[1]} tell the same")
    series = of_host[there[0] + asked] if there else ()
    kinds: dict[frozenset[tuple[str, str]], Mapping[str, str]] = {}
    for each in series:
        labels = {label: value for label, value in each.labels.items() if label not in added}
        kinds.setdefault(frozenset(labels.items()), labels)
    if len(kinds) > 1:
        one, other, *_ = kinds.values()
        differ = sorted(label for label in {**one, **other} if one.get(label) != other.get(label))
        shown = [
            ", ".join(f'{label}="{each.get(label, "")}"' for label in differ)
            for each in (one, other)
        ]
        selectors = [f"{there[0]}{{{each}}}" for each in shown]
        raise Contradiction(f"two series tell the same: {selectors[0]} and {selectors[1]}")
    return series
