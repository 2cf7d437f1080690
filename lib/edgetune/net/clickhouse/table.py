# SPDX-License-Identifier: Apache-2.0
"""The table in which a site has a row for each host and time, the SQL that reads it, and the
samples of its rows. Each is checked: others wrote them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any

from edgetune.agent.vocabulary.buckets import bucket_name
from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.sample import Sample, boot_of, is_same_boot
from edgetune.base.documents.table import countable
from edgetune.net.clickhouse.server import MOST_ROWS, Server, by_value, is_one_of, parameters_of
from edgetune.site.inventory import Host, Pop

DEADLINE = 30.0
"""Seconds of one answer."""

HOST_SECONDS = 2 * MOST_ROWS
"""Of one query, hosts times seconds: a host may have a row each two seconds."""

_LAST = 2
"""Rows of a host before a moment: where the last one is there twice, both have to be the same."""

_OWN = ("host", "time", "boot", "uptime")
_COLUMNS = (
    "SELECT name FROM system.columns WHERE database = {database:String} AND table = {table:String}"
)
_TIME = "toUnixTimestamp64Micro(toDateTime64({time:Identifier}, 6))"
_UPTIME = "toFloat64({uptime:Identifier})"
_MOMENT = (
    f"greatest(0, least({{moments:Int64}}, intDiv({_TIME} - {{start:Int64}} + {{step:Int64}} - 1,"
    " {step:Int64})))"
)
"""The number of the next moment, as it is for what is later than the last one."""
_SINCE_BOOT = f"({_TIME} - toUnixTimestamp64Micro(toDateTime64({{boot:Identifier}}, 6))) / 1e6"

MOST_AHEAD = 10.0
"""By how many seconds the time of a row may be ahead of the action runner's clock."""
_LONGEST_BOOT = 100
Row = Sequence[Any]


@dataclass(frozen=True)
class Rows:
    """Rows of an answer in the order of time: host, microseconds, boot, uptime, ``readings``.

    ``hosts`` are the names of hosts by what a row has for them. Where ``has_boot_time``, the boot
    is known by its time: that of the row without the uptime.
    """

    hosts: Mapping[str, str]
    has_boot_time: bool
    readings: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class TableFields:
    """What ``metrics`` of a PoP says, by the names of the source's fields: where ClickHouse is, how
    to log in there, the table with its database, and the columns in it."""

    url: str
    table: str
    host: str
    host_value: str
    time: str
    boot: str
    uptime: str
    user: str
    password_file: str
    ca_file: str

    def column(self, name: str) -> str:
        """The column of the host, time, boot or uptime; "" where the table has none."""
        columns = {"host": self.host, "time": self.time, "boot": self.boot, "uptime": self.uptime}
        return columns[name]


class SiteTable:
    """The table that ``metrics`` of a PoP names, and in it the ``columns`` of readings.

    No query goes on beyond ``ends``, of ``clock.monotonic``. Every call raises SourceError, or
    InputError for what is wrong on our side.
    """

    def __init__(self, pop: Pop, columns: Mapping[str, str], ends: float = math.inf) -> None:
        fields = TableFields(**pop.metrics.fields)
        self._fields, self._known, self._ends = fields, columns, ends
        where = f"{pop.name}: ClickHouse at {fields.url}"
        self.server = Server(where, fields.url, fields.user, fields.password_file, fields.ca_file)
        self._database, _, self._table = fields.table.partition(".")

    @property
    def name(self) -> str:
        """With its database."""
        return self._fields.table

    def read(self, hosts: Sequence[Host], start: float, end: float) -> Iterator[Rows]:
        """All rows of hosts with ``start`` <= time <= ``end``, in epoch seconds, the oldest
        first."""
        by_value, readings = self._by_value(hosts), self._readings()
        begin, until = math.ceil(start * 1e6), math.floor(end * 1e6) + 1
        step = max(1, HOST_SECONDS // len(hosts)) * 1_000_000
        for first in range(begin, until, step):
            yield self._rows(by_value, readings, first, min(first + step, until))

    def read_last(
        self, hosts: Sequence[Host], moments: Sequence[float], before: float, ahead: float
    ) -> Iterator[Rows]:
        """The last rows of each host in the ``before`` seconds until each of some moments, and
        between the last moment and ``ahead``; all in epoch seconds, the oldest first.

        ``moments`` have the same time between each other, and what comes before one of them stands
        in no part a second time.
        """
        by_value, readings = self._by_value(hosts), self._readings()
        micros = [round(moment * 1e6) for moment in moments]
        step = max(1, micros[1] - micros[0]) if len(micros) > 1 else 1
        many = max(1, MOST_ROWS // (_LAST * len(hosts)) - 1)
        for number in range(0, len(micros), many):
            part = micros[number : number + many]
            begin = part[0] - round(before * 1e6)
            # What is older was in the part before.
            begin = max(begin, micros[number - 1] + 1) if number else begin
            until = part[-1] if part[-1] < micros[-1] else round(ahead * 1e6)
            named = {"start": part[0], "step": step, "moments": len(part)}
            yield self._rows(
                by_value, readings, begin, until + 1, {**named, "before": round(before * 1e6)}
            )

    def newest(self, hosts: Sequence[Host], start: float, end: float) -> float | None:
        """The time of the last row of hosts with ``start`` <= time <= ``end``; None without one."""
        fields = parameters_of([*self._by_value(hosts)])
        span = {"first": str(math.ceil(start * 1e6)), "until": str(math.floor(end * 1e6) + 1)}
        parameters = {**self._names("host", "time"), **fields, **span}
        sql = f"SELECT max({_TIME}) AS edgetune_time {_of([*fields])}"
        rows = self._query(sql, parameters, ["edgetune_time"])
        if len(rows) != 1 or type(rows[0][0]) is not int:
            raise self.server.wrong(f"the time of the last row is {rows}")
        return rows[0][0] / 1e6 or None

    def _rows(
        self,
        hosts: Mapping[str, str],
        readings: Mapping[str, str],
        first: int,
        until: int,
        moments: Mapping[str, int] | None = None,
    ) -> Rows:
        """All, or the last ones before ``moments``."""
        fields = parameters_of([*hosts])
        named = {f"reading{number}": column for number, column in enumerate(readings.values())}
        span = {"first": str(first), "until": str(until)}
        before_moments = {name: str(value) for name, value in (moments or {}).items()}
        parameters = {**self._names(), **named, **fields, **span, **before_moments}
        columns = [f"edgetune_{name}" for name in (*_OWN, *named)]
        sql = self._select([*named], [*fields])
        rows = self._query(
            _last_of(sql) if moments else f"{sql} ORDER BY edgetune_time", parameters, columns
        )
        rows = rows[::-1] if moments else rows
        before = first
        for row in rows:
            if row[0] not in hosts or type(row[1]) is not int or not before <= row[1] < until:
                raise self.server.wrong(f"a row was not asked for, or out of order: {row[:2]}")
            before = row[1]
        return Rows(hosts, not self._fields.uptime, [*readings], rows)

    def _query(
        self, sql: str, parameters: Mapping[str, str], columns: Sequence[str]
    ) -> list[list[Any]]:
        ends = min(self._ends, clock.monotonic() + DEADLINE)
        return self.server.query(sql, parameters, columns, ends)

    def _select(self, readings: Sequence[str], fields: Sequence[str]) -> str:
        """No text of a person, a host or a file stands in it."""
        columns = [
            "toString({host:Identifier}) AS edgetune_host",
            f"{_TIME} AS edgetune_time",
            "toString({boot:Identifier}) AS edgetune_boot",
            f"{_UPTIME if self._fields.uptime else _SINCE_BOOT} AS edgetune_uptime",
            *(f"toFloat64({{{name}:Identifier}}) AS edgetune_{name}" for name in readings),
        ]
        return f"SELECT {', '.join(columns)} {_of(fields)}"

    def _names(self, *columns: str) -> dict[str, str]:
        by_name = {name: self._fields.column(name) for name in columns or _OWN}
        there = {name: column for name, column in by_name.items() if column}
        return {"database": self._database, "table": self._table, **there}

    def _readings(self) -> dict[str, str]:
        """The column of each reading that the table has."""
        there = self._columns()
        needed = {name: column for name in _OWN if (column := self._fields.column(name))}
        lacks = [f"{column!r} ({name})" for name, column in needed.items() if column not in there]
        if lacks:
            missing = ", ".join(lacks)
            raise self.server.wrong(f"{self._fields.table} has no column {missing}")
        readings = {name: column for name, column in self._known.items() if column in there}
        if not readings:
            raise self.server.wrong(f"{self._fields.table} has no column of a reading")
        return readings

    def _columns(self) -> set[str]:
        names = {"database": self._database, "table": self._table}
        columns = {row[0] for row in self._query(_COLUMNS, names, ["name"])}
        if not columns:
            raise self.server.wrong(
                f"there is no {self._fields.table}, or the user may not read it"
            )
        return columns

    def _by_value(self, hosts: Sequence[Host]) -> dict[str, str]:
        """The name of each host by what the table has for it."""
        return by_value(hosts, self._fields.host_value, self.server.where)


def _last_of(sql: str) -> str:
    """The last rows of each host before each moment, the newest first."""
    near = "{start:Int64} + edgetune_moment * {step:Int64} - edgetune_time <= {before:Int64}"
    return (
        f"WITH {_MOMENT} AS edgetune_moment {sql}"
        f" AND (edgetune_moment = {{moments:Int64}} OR {near})"
        f" ORDER BY edgetune_time DESC LIMIT {_LAST} BY edgetune_host, edgetune_moment"
    )


def _of(fields: Sequence[str]) -> str:
    """The rows of the hosts in these parameters, and of a time."""
    return (
        f"FROM {{database:Identifier}}.{{table:Identifier}} WHERE {is_one_of(fields)}"
        " AND {time:Identifier} >= fromUnixTimestamp64Micro({first:Int64})"
        " AND {time:Identifier} < fromUnixTimestamp64Micro({until:Int64})"
    )


class Reader:
    """Reads the answers to one question, in their order; ``now`` is the action runner's clock.

    Readings that are not among ``counters`` are gauges; ``histograms`` are those of the counters
    that have buckets, with their bounds. ``odd`` says of hosts what is wrong with the first row of
    theirs that is no sample.
    """

    def __init__(
        self,
        now: float,
        counters: Collection[str],
        histograms: Mapping[str, Sequence[float]] = MappingProxyType({}),
    ) -> None:
        self._now, self._histograms = now, histograms
        buckets = (
            bucket_name(of, n) for of, bounds in histograms.items() for n in range(len(bounds))
        )
        self._counters = {*counters, *buckets}
        self._last: dict[str, Row] = {}
        self._boots: dict[str, str] = {}
        self.odd: dict[str, str] = {}

    def samples(self, part: Rows) -> Iterator[Sample]:
        """The samples of rows that make sense; two rows that are the same are one."""
        places = {name: place for place, name in enumerate(part.readings, len(_OWN))}
        gauges = {name: place for name, place in places.items() if name not in self._counters}
        counters = {name: place for name, place in places.items() if name in self._counters}
        for row in part.rows:
            host, time = part.hosts[row[0]], row[1] / 1e6
            last = self._last.get(host)
            problem = self._problem(row, part) or _difference(row, last, part)
            if problem:
                shown = datetime.fromtimestamp(time, timezone.utc).isoformat(
                    timespec="milliseconds"
                )
                self.odd.setdefault(host, f"its row of {shown}: {problem}")
            elif row != last:
                boot = self._boot(host, row, part.has_boot_time)
                counted = _known(row, counters)
                for histogram, bounds in self._histograms.items():
                    _unstack(counted, histogram, len(bounds))
                yield Sample(host, time, boot, row[3], counted, _known(row, gauges))
            self._last[host] = row

    def _problem(self, row: Row, part: Rows) -> str:
        ahead, boot = row[1] / 1e6 - self._now, row[2]
        if ahead > MOST_AHEAD:
            return f"it is {ahead:.0f} s in the future, so a clock is wrong"
        if type(boot) is not str or not 0 < len(boot) <= _LONGEST_BOOT or not boot.isprintable():
            return "no boot"
        for name, value in zip(("uptime", *part.readings), row[3:]):
            if not countable(value) and (value is not None or name == "uptime"):
                return f"{name} is {value!r}"
        return ""

    def _boot(self, host: str, row: Row, has_boot_time: bool) -> str:
        """The time of a boot changes when a clock is set: the first one stays."""
        boot = boot_of("", row[1] / 1e6 - row[3]) if has_boot_time else row[2]
        before = self._boots.get(host)
        if before is None or not is_same_boot(before, boot):
            self._boots[host] = before = boot
        return before


def _difference(row: Row, last: Row | None, part: Rows) -> str:
    """What two rows of one host and time do not agree on."""
    if last is None or row[1] != last[1] or row == last:
        return ""
    names = (*_OWN, *part.readings)
    name, one, other = next(values for values in zip(names, last, row) if values[1] != values[2])
    return f"there are two, with {name} {one!r} and {other!r}"


def _known(row: Row, places: Mapping[str, int]) -> dict[str, float]:
    return {name: row[place] for name, place in places.items() if row[place] is not None}


def _unstack(counters: dict[str, float], histogram: str, bounds: int) -> None:
    """Each column of a bucket counts what is within its bound: take out what is in those before.

    A row that lacks one, or in which one counts less than that before, has no histogram.
    """
    total = counters.pop(histogram, None)
    names = [bucket_name(histogram, number) for number in range(bounds)]
    within = [counters.pop(name, None) for name in names]
    known = [0.0, *(each for each in [*within, total] if each is not None)]
    if bounds and len(known) == bounds + 2 and known == sorted(known):
        inside = [later - each for each, later in zip(known, known[1:])]
        counters.update(zip([*names, bucket_name(histogram, bounds)], inside))
        counters[histogram] = known[-1]
