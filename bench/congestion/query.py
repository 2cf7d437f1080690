# SPDX-License-Identifier: Apache-2.0
"""One round of a PoP out of many polls of sockets, by ClickHouse's own engine in this process."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

from bench.congestion.rounds import megabytes
from edgetune.base import clock
from edgetune.base.documents.congestion import ROUND
from edgetune.net.inventories import read_pop
from edgetune.wings.congestion.sources import open_source
from lab.clickhouse import Asked, Chdb, ClickHouse, Table

POLLS = 30
"""Of each socket in a round: every ten seconds."""
HOSTS = 50
PREFIXES = 20_000

_FIRST = 5_880_000
_TABLE = """
CREATE TABLE xtcp.xtcp_flat_records (
    timestamp_ns DateTime64(9, 'UTC'), hostname LowCardinality(String),
    inet_diag_msg_socket_destination String, inet_diag_msg_socket_source_port UInt32,
    inet_diag_msg_socket_cookie UInt64, tcp_info_rtt UInt32, tcp_info_min_rtt UInt32,
    tcp_info_delivery_rate UInt64, tcp_info_delivery_rate_app_limited UInt32,
    tcp_info_busy_time UInt64, tcp_info_bytes_acked UInt64, tcp_info_bytes_sent UInt64,
    tcp_info_bytes_retrans UInt64
) ENGINE = MergeTree ORDER BY (timestamp_ns, hostname)
"""
_ROWS = """
INSERT INTO xtcp.xtcp_flat_records
WITH number % {sockets:UInt64} AS socket, intDiv(number, {sockets:UInt64}) AS poll
SELECT fromUnixTimestamp64Nano(({start:Int64} + poll * 10) * 1000000000, 'UTC'),
    concat('e', leftPad(toString(socket % {hosts:UInt64}), 3, '0')),
    reverse(reinterpretAsString(toUInt32(
        3221225472 + (cityHash64(socket) % {prefixes:UInt64}) * 256 + 1 + socket % 200))),
    443, socket, 40000 + socket % 1000, 30000, 1 + cityHash64(number) % 10000000,
    cityHash64(number, 1) % 4 = 0, 1 + poll * 1000000, number * 1000, number * 1001, poll
FROM numbers({rows:UInt64})
"""


class _Later(clock.Clock):
    """The round is over, and old enough to be read."""

    def wall(self) -> float:
        return _FIRST * ROUND + 400.0


def query(rows: int) -> dict[str, float]:
    """Seconds to read a round of so many rows, through HTTP, and megabytes of the process before
    and at its most; chdb is needed."""
    engine = Chdb()
    start = _FIRST * ROUND
    parameters = {"sockets": rows // POLLS, "hosts": HOSTS, "prefixes": PREFIXES, "rows": rows}
    engine.run("CREATE DATABASE xtcp")
    engine.run(_TABLE)
    engine.run(_ROWS, {name: str(own) for name, own in {**parameters, "start": start}.items()})
    before = megabytes()

    def answer(_: Table, asked: Asked) -> str:
        return engine.answer(asked)

    hosts = {f"e{number:03}": {"address": f"192.0.2.{number}"} for number in range(HOSTS)}
    hook = {"driver": "command", "program": "/bin/true"}
    pop = read_pop("bench", "pop1", {"ports": [443], "load_balancer": hook, "hosts": hosts})
    server = ClickHouse(Table([]), answer)
    # A busy machine is to be measured, too.
    patient = mock.patch("edgetune.wings.congestion.sources.clickhouse._DEADLINE", 900.0)
    connections: Any = None
    try:
        with clock.use(_Later()), patient:
            source = open_source("clickhouse", {"url": server.url}, connections)
            wall, cpu = time.perf_counter(), time.process_time()
            found = source.read(pop, _FIRST, 3)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    finally:
        server.close()
        engine.close()
    cost = {"wall": wall, "cpu": cpu, "megabytes_before": before, "megabytes": megabytes()}
    return {"rows": rows, "prefixes": len(found), **cost}
