# SPDX-License-Identifier: Apache-2.0
"""Polls of sockets as xtcp2 writes them into ClickHouse, and what ClickHouse answers of them.

.venv/bin/pip install -r requirements-chdb.txt
.venv/bin/python -m tests.support.congestion_sockets  writes tests/fixtures/clickhouse/sockets.json

The columns and their types are those that edgetune reads of xtcp2's table ``xtcp_flat_records``
(randomizedcoder/xtcp2, MIT, commit 32a4fed: build/containers/clickhouse/initdb.d/sql/
xtcp_xtcp_flat_records.sql).
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgetune.base import clock
from edgetune.base.errors import SourceError
from edgetune.site.inventory import Pop
from edgetune.wings.congestion.sources import open_source
from lab.clickhouse import Asked, Chdb, ClickHouse, Engine, Failed, Table
from tests.support import ROOT
from tests.support.clickhouse_recorded import pop_of
from tests.support.virtual_clock import RunningClock

if TYPE_CHECKING:
    from edgetune.wings.congestion.rows import PrefixRows

FILE = ROOT / "tests/fixtures/clickhouse/sockets.json"
NO_CONNECTIONS: Any = None

FIRST = 5_880_000
START = FIRST * 300

TABLE = """
CREATE TABLE xtcp.xtcp_flat_records (
    timestamp_ns DateTime64(9, 'UTC'),
    hostname LowCardinality(String),
    inet_diag_msg_socket_destination String,
    inet_diag_msg_socket_source_port UInt32,
    inet_diag_msg_socket_cookie UInt64,
    tcp_info_rtt UInt32,
    tcp_info_min_rtt UInt32,
    tcp_info_delivery_rate UInt64,
    tcp_info_delivery_rate_app_limited UInt32,
    tcp_info_busy_time UInt64,
    tcp_info_bytes_acked UInt64,
    tcp_info_bytes_sent UInt64,
    tcp_info_bytes_retrans UInt64
) ENGINE = MergeTree ORDER BY (timestamp_ns, hostname)
"""


@dataclass(frozen=True)
class Poll:
    """A socket at a moment, in seconds after START."""

    at: float
    client: str
    rate: int
    cookie: int = 1
    host: str = "e000"
    port: int = 443
    limited: int = 0
    rtt: int = 40_000
    min_rtt: int = 30_000
    busy: int = 1_000_000
    acked: int = 900
    sent: int = 1000
    again: int = 10

    @property
    def address(self) -> bytes:
        """4 or 16 bytes."""
        family = socket.AF_INET6 if ":" in self.client else socket.AF_INET
        return socket.inet_pton(family, self.client)

    @property
    def values(self) -> str:
        """As SQL has it."""
        return (
            f"(fromUnixTimestamp64Nano({int((START + self.at) * 1e9)}, 'UTC'), '{self.host}',"
            f" unhex('{self.address.hex()}'), {self.port}, {self.cookie}, {self.rtt},"
            f" {self.min_rtt}, {self.rate}, {self.limited}, {self.busy}, {self.acked},"
            f" {self.sent}, {self.again})"
        )


POLLS: Sequence[Poll] = [
    # One socket, three times in the round: what was seen last counts, and its totals once.
    Poll(10, "203.0.113.7", 100, 1, acked=100, sent=200, again=1),
    Poll(40, "203.0.113.7", 300, 1, acked=400, sent=500, again=2, rtt=50_000, min_rtt=20_000),
    Poll(70, "203.0.113.7", 999_999, 1, acked=700, sent=800, again=3, limited=1, rtt=60_000),
    # Another one of the prefix: the same cookie on another host.
    Poll(20, "203.0.113.8", 500, 1, host="e001", rtt=80_000, min_rtt=70_000, busy=300_000),
    Poll(20, "203.0.113.9", 700, 2, min_rtt=4_294_967_295, busy=0),
    # Not ours: another port, before and after the round, another host, only limited, no rate.
    Poll(30, "203.0.113.10", 1, 3, port=22),
    Poll(-1, "203.0.113.11", 1, 4),
    Poll(300, "203.0.113.12", 1, 5),
    Poll(30, "203.0.113.13", 1, 6, host="elsewhere"),
    Poll(30, "203.0.113.14", 1, 7, limited=1),
    Poll(30, "203.0.113.15", 0, 8),
    # IPv6, IPv4 inside of it, and the least and the largest prefixes.
    Poll(30, "2001:db8:0:1ff::1", 2000, 9),
    Poll(31, "2001:db8:0:100::2", 2000, 10),
    Poll(30, "::ffff:198.51.100.1", 3000, 11, min_rtt=4_294_967_295),
    Poll(30, "0.0.0.1", 4000, 12, busy=0),
    Poll(30, "255.255.255.255", 5000, 13),
    Poll(30, "ffff:ffff:ffff:ffff::", 6000, 14),
    Poll(299.999, "::1", 7000, 15),
]

OTHER = """
CREATE VIEW xtcp.others AS SELECT timestamp_ns AS at, hostname AS server,
    IPv6NumToString(toFixedString(if(length(inet_diag_msg_socket_destination) = 4,
        concat(unhex('00000000000000000000FFFF'), inet_diag_msg_socket_destination),
        inet_diag_msg_socket_destination), 16)) AS peer,
    * EXCEPT (timestamp_ns, hostname, inet_diag_msg_socket_destination)
FROM xtcp.xtcp_flat_records
"""

ENTRIES: Mapping[str, Mapping[str, str]] = {
    "as xtcp2 has it": {},
    "other columns": {
        "table": "xtcp.others",
        "addresses": "text",
        "host": "server",
        "time": "at",
        "client": "peer",
    },
    "a column that is none": {"rtt": "round_trip"},
    "a table that is none": {"table": "xtcp.nothing"},
}
"""What the inventory has for the source, by what is special about it."""

EXPECTED: Mapping[str, Mapping[str, Any]] = {
    "0.0.0.0/24": {"sockets": 1, "delivery_rate": 4000.0, "goodput": None},
    "198.51.100.0/24": {"sockets": 1, "delivery_rate": 3000.0, "min_rtt_ms": None},
    "203.0.113.0/24": {
        "sockets": 3,
        "delivery_rate": 500.0,
        # Of 700 and 3,000: the third was never busy.
        "goodput": 3000.0,
        "rtt_ms": 60.0,
        "min_rtt_ms": 30.0,
        "bytes_acked": 700.0 + 900 + 900,
        "bytes_sent": 800.0 + 1000 + 1000,
        "bytes_retransmitted": 3.0 + 10 + 10,
    },
    "255.255.255.0/24": {"sockets": 1, "delivery_rate": 5000.0},
    "::/56": {"sockets": 1, "delivery_rate": 7000.0},
    "2001:db8:0:100::/56": {"sockets": 2, "delivery_rate": 2000.0, "bytes_sent": 2000.0},
    "ffff:ffff:ffff:ff00::/56": {"sockets": 1, "delivery_rate": 6000.0},
}
"""What the round FIRST has of each prefix, some of it."""


def read(
    folder: Path, engine: Engine, entry: Mapping[str, str], number: int = FIRST, least: int = 1
) -> PrefixRows:
    """A round from a server that answers by the engine; it is 60 s after the round FIRST."""
    server = ClickHouse(Table([]), engine)
    try:
        own = {"url": server.url, **entry}
        with clock.use(RunningClock(START + 360.0)):
            return open_source("clickhouse", own, NO_CONNECTIONS).read(pop(folder), number, least)
    finally:
        server.close()


def pop(folder: Path) -> Pop:
    """The PoP lab1 with three hosts, which serve on the port 443."""
    return replace(pop_of(folder, {"url": "http://127.0.0.1:1"}), ports=(443,))


def loaded() -> Chdb:
    """chdb with the tables."""
    engine = Chdb()
    engine.run("CREATE DATABASE IF NOT EXISTS xtcp")
    for name in ("TABLE", "VIEW"):
        tables = {"TABLE": "xtcp.xtcp_flat_records", "VIEW": "xtcp.others"}
        engine.run(f"DROP {name} IF EXISTS {tables[name]} SYNC")
    engine.run(TABLE)
    engine.run(OTHER)
    polls = ", ".join(poll.values for poll in POLLS)
    engine.run(f"INSERT INTO xtcp.xtcp_flat_records VALUES {polls}")
    return engine


def told_by(folder: Path, engine: Chdb) -> dict[str, list[dict[str, Any]]]:
    """For each entry what is asked, and what is answered, or the code of the failure."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, entry in ENTRIES.items():
        found[name] = told = []

        def listen(_: Table, asked: Asked, told: list[Any] = told) -> str:
            own: dict[str, Any] = {"sql": asked.sql, "parameters": dict(asked.parameters)}
            told.append(own)
            try:
                answer = json.loads(engine.answer(asked))
            except Failed as error:
                own["code"] = error.code
                raise
            del answer["statistics"]
            answer["data"].sort(key=str)
            own["answer"] = answer
            return json.dumps(answer)

        try:
            read(folder, listen, entry)
        except SourceError:
            continue
    return found


def recorded(_: Table, asked: Asked) -> str:
    """An Engine that answers as chdb did."""
    for own in (own for entry in json.loads(FILE.read_text())["told"].values() for own in entry):
        if (own["sql"], own["parameters"]) == (asked.sql, dict(asked.parameters)):
            if "code" in own:
                raise Failed(own["code"], "as it was recorded")
            return json.dumps(own["answer"])
    raise AssertionError(f"nothing was recorded of {asked.sql} with {asked.parameters}")


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as made:
        chdb = loaded()
        told = told_by(Path(made), chdb)
        version = chdb.run("SELECT version() FORMAT TSV").strip()
        FILE.write_text(json.dumps({"version": version, "told": told}, indent=1) + "\n")
        chdb.close()
