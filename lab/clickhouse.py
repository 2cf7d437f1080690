# SPDX-License-Identifier: Apache-2.0
"""A ClickHouse on loopback: HTTP as ClickHouse speaks it, and behind it chdb, or a stand-in.

chdb is ClickHouse as a library, of the same version of SQL. The stand-in knows the queries of
``edgetune.net.clickhouse`` alone. ``tests/lib/net/metrics/test_clickhouse_sql.py`` holds it against
what chdb answered.
"""

from __future__ import annotations

import email
import json
import re
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any, Callable
from urllib.parse import parse_qsl, urlsplit

TYPES = {
    "host": "LowCardinality(String)",
    "time": "DateTime64(6, 'UTC')",
    **dict.fromkeys(("boot_id", "name"), "Nullable(String)"),
    "boot_time": "DateTime64(6, 'UTC')",
}
"""Of columns; others are Nullable(Float64)."""

_TIMES = ("time", "boot_time")
_ROWS_AT_ONCE = 20_000


class Failed(Exception):
    """What ClickHouse says of a query that fails, with its code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass
class Table:
    """``edge.hosts``; a row has some of its ``columns``, times in epoch seconds."""

    columns: Sequence[str]
    rows: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    method: str
    settings: Mapping[str, str]
    headers: Mapping[str, str]
    sql: str
    parameters: Mapping[str, str]


Engine = Callable[[Table, Asked], str]
"""Answers in JSONCompact, or raises Failed."""


def stand_in(table: Table, asked: Asked) -> str:
    """An Engine that needs no ClickHouse."""
    given = asked.parameters
    if "system.columns" in asked.sql:
        there = (given["database"], given["table"]) == ("edge", "hosts")
        return _answer({"name": "String"}, [[name] for name in table.columns if there])
    names = re.findall(r"AS (edgetune_\w+)", asked.sql[asked.sql.index("SELECT") :])
    listed = "".join(text for name, text in given.items() if name.startswith("hosts"))
    quoted = re.findall(r"'((?:[^'\\]|\\.)*)'", listed)
    hosts = {re.sub(r"\\(.)", r"\1", text) for text in quoted}
    if names == ["edgetune_time"]:
        return _answer(dict.fromkeys(names, "Int64"), [[_newest(table, given, hosts)]])
    found = [
        [row[given["host"]], _micros(row[given["time"]]), _text(row, given["boot"])]
        + [_uptime(row, given)]
        + [row.get(given[f"reading{number}"]) for number in range(len(names) - 4)]
        for row in _within(table, given, hosts)
    ]
    limit = re.search(r"LIMIT (\d+) BY", asked.sql)
    if limit:
        spans = (int(given[name]) for name in ("start", "step", "before", "moments"))
        found = _last(found, int(limit[1]), *spans)
        return _answer(dict.fromkeys(names, ""), found)
    return _answer(dict.fromkeys(names, ""), sorted(found, key=lambda row: row[1]))


def _within(
    table: Table, given: Mapping[str, str], hosts: Collection[str]
) -> Iterator[Mapping[str, Any]]:
    first, until = int(given["first"]), int(given["until"])
    for row in table.rows:
        if row[given["host"]] in hosts and first <= _micros(row[given["time"]]) < until:
            yield row


def _last(
    rows: list[Any], most: int, start: int, step: int, before: int, moments: int
) -> list[Any]:
    """As LIMIT BY has it: the last rows of each host before each moment."""
    found, taken = [], Counter[tuple[Any, int]]()
    for row in sorted(rows, key=lambda row: -row[1]):
        moment = max(0, min(moments, -((start - row[1]) // step)))
        if moment == moments or start + moment * step - row[1] <= before:
            taken[row[0], moment] += 1
            found += [row] if taken[row[0], moment] <= most else []
    return found


def _newest(table: Table, given: Mapping[str, str], hosts: Collection[str]) -> int:
    """As max has it, 0 without rows."""
    times = (_micros(row[given["time"]]) for row in _within(table, given, hosts))
    return max(times, default=0)


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)


def _text(row: Mapping[str, Any], column: str) -> Any:
    if column not in _TIMES:
        return row.get(column)
    at = datetime.fromtimestamp(row[column], timezone.utc)
    return at.strftime("%Y-%m-%d %H:%M:%S.%f")


def _uptime(row: Mapping[str, Any], given: Mapping[str, str]) -> Any:
    if "uptime" in given:
        return row.get(given["uptime"])
    return (_micros(row[given["time"]]) - _micros(row[given["boot"]])) / 1e6


def _answer(columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> str:
    meta = [{"name": name, "type": kind} for name, kind in columns.items()]
    return json.dumps({"meta": meta, "data": rows, "rows": len(rows), "statistics": {}})


class Chdb:
    """An Engine of the real thing; ImportError where chdb is missing (requirements-chdb.txt)."""

    def __init__(self) -> None:
        session = import_module("chdb.session").Session()
        self._session, self._lock, self._loaded = session, threading.Lock(), ""

    def __call__(self, table: Table, asked: Asked) -> str:
        text = json.dumps([table.columns, table.rows])
        with self._lock:
            if text != self._loaded:
                self.load(table)
                self._loaded = text
            return self.answer(asked)

    def answer(self, asked: Asked) -> str:
        """Of the tables that there are."""
        settings = {
            name: own for name, own in asked.settings.items() if name != "wait_end_of_query"
        }
        text = ", ".join(f"{name} = '{own}'" for name, own in settings.items())
        return self.run(f"{asked.sql} SETTINGS {text}", asked.parameters)

    def run(self, sql: str, parameters: Mapping[str, str] | None = None) -> str:
        """What ClickHouse answers; with FORMAT in the SQL."""
        try:
            return str(self._session.query(sql, params=dict(parameters or {})))
        except RuntimeError as error:
            # What it had of the answer would stand before the next one.
            self._session.query("SELECT 1")
            code = re.search(r"Code: (\d+)", str(error))
            raise Failed(int(code.group(1)) if code else 0, str(error)) from None

    def close(self) -> None:
        self._session.close()

    def load(self, table: Table) -> None:
        """Have this table in place of the one that there is."""
        columns = ", ".join(
            f"`{name}` {TYPES.get(name, 'Nullable(Float64)')}" for name in table.columns
        )
        self.run("CREATE DATABASE IF NOT EXISTS edge")
        self.run("DROP TABLE IF EXISTS edge.hosts SYNC")
        self.run(f"CREATE TABLE edge.hosts ({columns}) ENGINE = MergeTree ORDER BY (host, time)")
        for first in range(0, len(table.rows), _ROWS_AT_ONCE):
            rows = "\n".join(map(_written, table.rows[first : first + _ROWS_AT_ONCE]))
            self.run(f"INSERT INTO edge.hosts FORMAT JSONEachRow {rows}")


def _written(row: Mapping[str, Any]) -> str:
    return json.dumps({k: f"{v:.6f}" if k in _TIMES else v for k, v in row.items()})


def _text_of(part: Message) -> str:
    body = part.get_payload(decode=True)
    return body.decode() if isinstance(body, bytes) else ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        asked = self._asked()
        self.server.owner.asked.append(asked)
        self.close_connection = True
        self.server.owner.serve(self, asked)

    do_GET = do_POST

    def _asked(self) -> Asked:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        head = f"Content-Type: {self.headers.get('Content-Type')}\r\n\r\n".encode()
        form = {
            str(part.get_param("name", header="Content-Disposition")): _text_of(part)
            for part in email.message_from_bytes(head + body).walk()
            if not part.is_multipart()
        }
        named = {
            name[len("param_") :]: text for name, text in form.items() if name.startswith("param_")
        }
        settings = dict(parse_qsl(urlsplit(self.path).query))
        headers = {name.lower(): text for name, text in self.headers.items()}
        return Asked(self.command, settings, headers, form.get("query", ""), named)

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: ClickHouse

    def handle_error(self, *_: Any) -> None:
        """A client that went away is no news."""


class ClickHouse:
    """A server on loopback; ``change`` makes another body of an answer, ``serve`` writes it."""

    def __init__(self, table: Table, engine: Engine = stand_in, port: int = 0) -> None:
        self.table, self.engine = table, engine
        self.asked: list[Asked] = []
        self.change: Callable[[str], str] = str
        self.headers: dict[str, str] = {}
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self._server.server_port}"

    scheme = "http"

    def wrap(self, context: Any) -> None:
        """Speak TLS from now on."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.scheme = "https"

    def rows_asked(self) -> list[Asked]:
        """The queries for rows."""
        return [own for own in self.asked if "hosts0" in own.parameters]

    def serve(self, handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        """Answer as ClickHouse does."""
        try:
            self.reply(handler, 200, self.change(self.engine(self.table, asked)))
        except Failed as error:
            code = {"X-ClickHouse-Exception-Code": str(error.code)}
            self.reply(handler, 500, f"{error}\n", code)

    def reply(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        body: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send that."""
        data = body.encode()
        handler.send_response(status)
        sent = {"Content-Length": str(len(data)), **self.headers, **(headers or {})}
        for name, text in sent.items():
            handler.send_header(name, text)
        handler.end_headers()
        handler.wfile.write(data)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def serving(table: Table, engine: Engine = stand_in) -> Iterator[ClickHouse]:
    """A server that ends with the block."""
    server = ClickHouse(table, engine)
    try:
        yield server
    finally:
        server.close()
