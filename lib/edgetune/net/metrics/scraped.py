# SPDX-License-Identifier: Apache-2.0
"""From series of Prometheus to samples: a row for each scrape of each host.

A host was scraped when it told its time of boot. What another exporter told of it since the scrape
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

Own = Mapping[str, Sequence[Series]]
"""The series of one host, by name and ``Wanted.asked``."""
_Column = list[float]


class Contradiction(ValueError):
    """Two series tell the same of a host; the text names both."""


@dataclass
class Boot:
    """The boot in which a host was scraped last: its id in samples, the time of boot by which its
    uptime is counted, and what was ``told`` of it last."""

    id: str
    began: float
    told: str
    start: int = 0


@dataclass
class Scrapes:
    """Those of one host, oldest first. ``odd`` says what it told that no host can count."""

    host: str
    times: _Column = field(default_factory=list)
    boots: list[str] = field(default_factory=list)
    uptime: _Column = field(default_factory=list)
    readings: dict[str, _Column] = field(default_factory=dict)
    odd: str = ""
    boot: Boot | None = None


def scrapes_of(
    host: str, own: Own, wanted: Sequence[Wanted], start: float, before: Boot | None = None
) -> Scrapes:
    """The scrapes of a host from ``start`` on; ``before`` is its boot until then, if it is known.

    Contradiction where more than one series tells the same.
    """
    found = Scrapes(host, boot=before)
    began = _one(own, (BOOT_TIME,), ())
    if not began:
        return found
    scrapes = zip(began[0].times, began[0].values)
    booted = {time: value for time, value in scrapes if time >= start and 0 <= value <= LARGEST}
    found.times = [*booted]
    segments = _segments([*booted.values()], _ids(own, found.times), before)
    for boot, end in zip(segments, [*(each.start for each in segments[1:]), len(found.times)]):
        if boot.id.startswith("@") and not (before and boot.id == before.id):
            # The agent may have told the id only later.
            boot.id = boot.told
        found.boots += [boot.id] * (end - boot.start)
        found.uptime += [max(0.0, time - boot.began) for time in found.times[boot.start : end]]
    found.boot = segments[-1] if segments else before
    starts = [boot.start for boot in segments]
    for each in wanted:
        if each.native:
            found.readings.update(_native(own, each, found))
            continue
        column = _reading(own, each, found, starts)
        if column:
            found.readings[each.reading] = column
    for name in (each.reading for each in wanted if each.bound == math.inf):
        buckets = [own.reading for own in wanted if own.reading.startswith(name + BUCKET)]
        _unstack(found.readings, name, buckets)
    return found


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
        name: array("d", [own[n][row] if own[n] else math.nan for _, n, row in rows])  # type: ignore[index]
        for name, own in columns.items()
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
    found: list[Boot] = []
    last = before
    for row, (began, identity) in enumerate(zip(booted, ids)):
        boot_id = boot_of(identity, began)
        if last is None or not is_same_boot(last.told, boot_id):
            found.append(Boot(boot_id, began, boot_id, row))
        elif not found:
            found.append(replace(last, start=0))
        last = found[-1]
        last.told = boot_id if identity else boot_of(last.told.partition("@")[0], began)
    return found


def _ids(own: Own, times: Sequence[float]) -> list[str]:
    """The kernel's id of the boot at each scrape, "" where the agent told none."""
    found = [""] * len(times)
    for series in _one(own, (BOOT_INFO,), ("boot_id",)):
        identity = series.labels.get("boot_id", "").replace("@", "")
        for row, value in enumerate(_placed(series, times)):
            if not math.isnan(value):
                found[row] = identity
    return found


def _native(own: Own, wanted: Wanted, scrapes: Scrapes) -> dict[str, _Column]:
    """The counters of a histogram whose samples have buckets: what one holds is in that bucket of
    ours in which its middle is. That of times from nothing on is the half of its end."""
    series = _one(own, wanted.series, wanted.added, wanted.asked)
    if not series or not series[0].buckets:
        return {}
    rows = {time: row for row, time in enumerate(scrapes.times)}
    unknown = [math.nan] * len(rows)
    found = {wanted.reading: [*unknown]}
    for time, count, buckets in zip(series[0].times, series[0].values, series[0].buckets):
        row = rows.get(time)
        if row is None:
            continue
        if not (math.isfinite(count) and count >= 0):
            scrapes.odd = f"{series[0].name} has a count of {count:g}"
            continue
        found[wanted.reading][row] = count
        for low, high, inside in buckets:
            middle = (math.sqrt(low * high) if low > 0 else max(high, 0.0) / 2) * wanted.scale
            column = found.setdefault(bucket_name(wanted.reading, bucket_of(middle)), [*unknown])
            column[row] = inside + (0.0 if math.isnan(column[row]) else column[row])
    return found


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
        own = [value - less for value, less in zip(column or (), before)]
        readings[each] = [value if value >= 0 else math.nan for value in own]
        before = column or before


def _with_bound(own: Own, wanted: Wanted) -> Own:
    """The series of one bucket among those of all."""
    if wanted.bound is None:
        return own
    names = [name + wanted.asked for name in wanted.series]
    return {
        name: [each for each in own.get(name, ()) if _is_bound(each.labels.get("le"), wanted.bound)]
        for name in names
    }


def _is_bound(text: str | None, bound: float) -> bool:
    try:
        return math.isclose(float(text or "nan"), bound, rel_tol=1e-9)
    except ValueError:
        return False


def _reading(own: Own, wanted: Wanted, scrapes: Scrapes, starts: Sequence[int]) -> _Column:
    """One number for each scrape, NaN where it is not known; empty where it never is."""
    own = _with_bound(own, wanted)
    series, factor = _one(own, wanted.series, wanted.added, wanted.asked), wanted.scale
    if not series and wanted.within:
        # The other series holds these, too.
        series, factor = _one(own, (wanted.within,), wanted.added, wanted.asked), 0.0
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
    found: _Column = []
    for start, end in zip(starts, [*starts[1:], len(columns[0])]):
        parts = [column[start:end] for column in columns]
        members = [part for part in parts if not all(map(math.isnan, part))]
        found += map(sum, zip(*members)) if members else [math.nan] * (end - start)
    return found


def _placed(series: Series, times: Sequence[float]) -> _Column:
    """The values of a series at each of the times at which the host was scraped."""
    first = bisect_left(series.times, times[0]) if times else 0
    if series.times[first:] == times:
        return [*series.values[first:]]
    found = [math.nan] * len(times)
    for time, value in zip(series.times, series.values):
        row = bisect_left(times, time)
        if row < len(times) and times[row] - time < LATE:
            found[row] = value
    return found


def _one(own: Own, names: Sequence[str], added: Sequence[str], asked: str = "") -> Sequence[Series]:
    """The series of that name which the host has; Contradiction where they tell the same twice."""
    there = [name for name in names if own.get(name + asked)]
    if len(there) > 1:
        raise Contradiction(f"{there[0]} and {there[1]} tell the same")
    series = own[there[0] + asked] if there else ()
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
