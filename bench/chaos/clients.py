# SPDX-License-Identifier: Apache-2.0
"""A ClickHouse whose table of sockets is made up: which prefixes of clients are slow moves on.

A process of its own beside the controller of a lab: ``python -m bench.chaos.clients PORT``.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator

from lab.clickhouse import Asked, ClickHouse, Table

SERVERS = "10.77.0.0/24"
"""The load balancer, the clients and the controller of the lab are in it."""

PREFIXES = (SERVERS, *(f"10.77.{number}.0/24" for number in range(20, 39)))
SLOW = 10
MOVES = 6.0
"""Seconds after which another prefix is slow in place of one that was."""


def slow_at(moment: float) -> frozenset[str]:
    """Those that are slow then; that of the servers always is."""
    others = PREFIXES[1:]
    first = int(moment / MOVES)
    own = (others[(first + number) % len(others)] for number in range(SLOW - 1))
    return frozenset((SERVERS, *own))


def answer(_: Table, asked: Asked) -> str:
    """An Engine (``lab.clickhouse``) that knows the two queries of ``clickhouse`` sockets."""
    first = int(asked.parameters["first"])
    names = re.findall(r"AS (\w+)", asked.sql)
    if "named" in names:
        listed = "".join(text for name, text in asked.parameters.items() if "hosts" in name)
        now = int(time.time() * 1e6)
        rows = [[host, first, now] for host in re.findall(r"'([^']*)'", listed)]
        return _table(("named", "oldest", "newest"), rows)
    columns = ("prefix", "sockets", "delivery_rate", "goodput", "rtt_ms", "min_rtt_ms")
    return _table(
        (*columns, "bytes_acked", "bytes_sent", "bytes_retransmitted"), _rows(first / 1e6)
    )


def _rows(moment: float) -> Iterator[list[float]]:
    slow = slow_at(moment)
    for prefix in PREFIXES:
        a, b, c, _ = map(int, prefix.partition("/")[0].split("."))
        rate = 1e4 if prefix in slow else 1e6
        yield [(a << 16) + (b << 8) + c, 50, rate, rate, 40.0, 30.0, 9e5, 1e6, 1e4]


def _table(columns: tuple[str, ...], rows: object) -> str:
    data = [*rows]  # type: ignore[misc]
    meta = [{"name": name, "type": ""} for name in columns]
    return json.dumps({"meta": meta, "data": data, "rows": len(data), "statistics": {}})


if __name__ == "__main__":
    ClickHouse(Table(()), answer, port=int(sys.argv[1]))
