# SPDX-License-Identifier: Apache-2.0
"""A table of ClickHouse, asked over HTTP."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from edgetune.agent.vocabulary.buckets import bucket_name
from edgetune.base import clock
from edgetune.base.addresses import canonical_url
from edgetune.base.fields import Field, Fields
from edgetune.base.sanitize import Pattern
from edgetune.net.metrics.source import RECENT, SOON, AskedByServer, Connections, Sampled
from edgetune.site.inventory import Host, Pop

if TYPE_CHECKING:
    from edgetune.base.documents.sample import Sample
    from edgetune.base.documents.table import SampleTable
    from edgetune.net.clickhouse.table import Reader, Rows, SiteTable

OLDEST = 60.0
"""Seconds: an older row tells nothing of a host as it is now."""

_COLUMN = "[A-Za-z_][A-Za-z0-9_]{0,99}"
_BUCKETS = Pattern(
    r"[A-Za-z_][A-Za-z0-9_]{0,60}\{bound\}[A-Za-z0-9_]{0,30}",
    "give the name of a column with {bound}, such as request_ms_le_{bound}",
)
_FILE = "/[!-~]+"

# Seconds: rows of a clock that is ahead are looked for so far in the future.
_FUTURE = 600.0


class ClickHouse(AskedByServer):
    """A table of ClickHouse with a row for each host and time, and a column for each reading. Its
    columns of readings have their names unless the metric says otherwise; those that are missing
    are not measured. [ClickHouse](../how-to/clickhouse.md) shows such a table, and a user."""

    fields: ClassVar[Mapping[str, Field]] = {
        "url": Field(
            "where its HTTP interface is: `http://HOST:PORT` or `https://HOST:PORT`",
            example="https://clickhouse.example.net:8443",
            pattern=r"https?://[A-Za-z0-9.:\[\]-]+",
            same=canonical_url,
        ),
        "table": Field(
            "the table or view, with its database",
            example="edge.hosts",
            pattern=rf"{_COLUMN}\.{_COLUMN}",
        ),
        "host": Field("the column of the host", "hostname", _COLUMN, default="host"),
        "host_value": Field(
            "what that column has for a host: text with `{name}` or `{address}`",
            example="{name}.example.net",
            pattern=r"[!-~]*\{(name|address)\}[!-~]*",
            default="{name}",
        ),
        "time": Field(
            "the column of the time, a DateTime or DateTime64", "at", _COLUMN, default="time"
        ),
        "boot": Field(
            "the column that has one value in each boot: the boot id, or the time of boot",
            example="boot_time",
            pattern=_COLUMN,
            default="boot_id",
        ),
        "uptime": Field(
            "the column of the uptime in seconds; without it, `boot` has to be a time of boot",
            example="uptime",
            pattern=_COLUMN,
            default="",
        ),
        "user": Field("the user, empty for ClickHouse's own", "edgetune", "[!-~]+", default=""),
        "password_file": Field(
            "a file with the user's password on every action runner",
            example="/opt/stackstorm/edgetune/clickhouse",
            pattern=_FILE,
            default="",
        ),
        "ca_file": Field(
            "a file with the certificates that ClickHouse is verified with, empty for the system's",
            example="/etc/ssl/clickhouse.pem",
            pattern=_FILE,
            default="",
        ),
    }

    @staticmethod
    def read_reading(fields: Fields, limit: float | None) -> Mapping[str, object]:
        """The column of the site's table; of a histogram with bounds, those of its buckets, too:
        each counts what is within its bound, which stands for ``{bound}``."""
        given = {
            "column": fields.text("column", pattern=_COLUMN),
            "buckets": fields.text("buckets", "", pattern=_BUCKETS),
        }
        return {name: entry for name, entry in given.items() if entry}

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def window(self, pop: Pop, start: float, end: float) -> SampleTable:
        now = clock.wall()
        table, reader = self._opened(pop, now)
        return _until(end, table, reader, table.read(pop.hosts, start, _ahead(end, now)))

    def thinned(
        self, pop: Pop, start: float, end: float, step: float, before: float
    ) -> SampleTable:
        now = clock.wall()
        table, reader = self._opened(pop, now)
        moments = [start + step * n for n in range(math.floor((end - start) / step) + 1)]
        ahead = _ahead(moments[-1], now)
        rows = table.read_last(pop.hosts, moments, before, ahead)
        return _until(moments[-1], table, reader, rows)

    def newest(self, pop: Pop) -> float | None:
        from edgetune.net.clickhouse.table import SiteTable

        now = clock.wall()
        ends = clock.monotonic() + SOON
        return SiteTable(pop, {}, ends).newest(pop.hosts, now - RECENT, now)

    def latest(self, pop: Pop, hosts: Sequence[Host]) -> Mapping[Host, Sampled]:
        from edgetune.net.clickhouse.table import DEADLINE

        now, newest = clock.wall(), dict[str, "Sample"]()
        table, reader = self._opened(pop, now, clock.monotonic() + DEADLINE)
        for part in table.read(hosts, now - OLDEST, now + _FUTURE):
            newest.update({sample.host: sample for sample in reader.samples(part)})
        old = f"no row of the last {OLDEST:.0f} s in {table.name}"
        return {
            host: Sampled(replace(newest[host.name], time=now))
            if host.name in newest and host.name not in reader.odd
            else Sampled(error=reader.odd.get(host.name, old))
            for host in hosts
        }

    def _opened(self, pop: Pop, now: float, ends: float = math.inf) -> tuple[SiteTable, Reader]:
        """The table of a PoP, and what reads its rows."""
        from edgetune.net.clickhouse.table import Reader, SiteTable

        metrics = self._connections.catalogue
        entries = metrics.entries_of("clickhouse")
        columns, histograms = dict[str, str](), metrics.histograms
        for name, entry in entries.items():
            fields = Fields(entry, "metrics", f"{name}.clickhouse")
            columns[name], template = fields.text("column"), fields.text("buckets", "")
            for number, bound in enumerate(histograms.get(name, ()) if template else ()):
                written = f"{bound:g}".replace(".", "_")
                columns[bucket_name(name, number)] = template.replace("{bound}", written)
        return SiteTable(pop, columns, ends), Reader(now, metrics.counters, histograms)


def _ahead(end: float, now: float) -> float:
    """Until when rows are looked for: near the present also those of a clock that is ahead."""
    return now + _FUTURE if end > now - OLDEST else end


def _until(end: float, table: SiteTable, reader: Reader, parts: Iterator[Rows]) -> SampleTable:
    """The samples of rows until then; SourceError for a row that is none."""
    from edgetune.base.documents.table import SampleTable

    samples = SampleTable()
    for part in parts:
        samples.add_rows([sample for sample in reader.samples(part) if sample.time <= end])
        for host, problem in reader.odd.items():
            raise table.server.wrong(f"{host}: {problem}")
    return samples


SOURCE = ClickHouse
