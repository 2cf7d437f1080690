# SPDX-License-Identifier: Apache-2.0
"""A table of ClickHouse with polls of sockets, as xtcp2 fills it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from edgetune.base import clock
from edgetune.base.documents.congestion import ROUND
from edgetune.base.fields import Field
from edgetune.net.clickhouse.server import Server, by_value, is_one_of, parameters_of
from edgetune.net.metrics.source import Connections
from edgetune.net.metrics.sources.clickhouse import ClickHouse
from edgetune.site.inventory import Pop
from edgetune.wings.congestion.source import (
    SocketSource,
    ports_of,
    refuse_part,
    span_of,
)

if TYPE_CHECKING:
    from edgetune.wings.congestion.rows import PrefixRows

LATE = 60.0
"""Seconds after its end at which the rows of a round are there: they come through a queue."""

MOST_AHEAD = 10.0
"""By how many seconds the newest row may be ahead of the action runner's clock."""

_DEADLINE = 60.0
_FUTURE = 3600.0
_NAME = "[A-Za-z_][A-Za-z0-9_]{0,99}"
_COLUMNS = {
    "host": ("the host", "hostname"),
    "time": ("the time of the poll, a DateTime or DateTime64", "timestamp_ns"),
    "cookie": (
        "the socket's cookie, which no other socket of its host has",
        "inet_diag_msg_socket_cookie",
    ),
    "client": ("the address of the client", "inet_diag_msg_socket_destination"),
    "port": ("the port of the host", "inet_diag_msg_socket_source_port"),
    "rate": ("the delivery rate, in bytes a second", "tcp_info_delivery_rate"),
    "limited": (
        "whether the application limited that rate, 0 if not",
        "tcp_info_delivery_rate_app_limited",
    ),
    "rtt": ("the round-trip time, in microseconds", "tcp_info_rtt"),
    "min_rtt": ("the least one of the socket", "tcp_info_min_rtt"),
    "busy": (
        "the time of the socket's life in which bytes were on their way, in microseconds; 0 where "
        "that is not known",
        "tcp_info_busy_time",
    ),
    "acked": ("the bytes that were acknowledged, of the socket's life", "tcp_info_bytes_acked"),
    "sent": ("the bytes that were sent, of the socket's life", "tcp_info_bytes_sent"),
    "again": ("those that were sent again, of the socket's life", "tcp_info_bytes_retrans"),
}
_SERVER = ("url", "host_value", "user", "password_file", "ca_file")

_TIME = "toUnixTimestamp64Micro(toDateTime64({time:Identifier}, 6))"
_WITHIN = (
    "FROM {database:Identifier}.{table:Identifier} WHERE"
    " {time:Identifier} >= fromUnixTimestamp64Micro({first:Int64})"
    " AND {time:Identifier} < fromUnixTimestamp64Micro({until:Int64})"
)
_BYTES = {
    "raw": "{client:Identifier}",
    "text": "IPv6StringToNumOrNull(toString({client:Identifier}))",
}
"""What gives 4 or 16 bytes in network order; null of a text that is no address."""
# RFC 4291: IPv4 inside IPv6.
_PREFIX = (
    "multiIf("
    "length(address) = 4, bitShiftRight(toUInt64(reinterpretAsUInt32(reverse(address))), 8),"
    " startsWith(address, unhex('00000000000000000000FFFF')),"
    " bitShiftRight(toUInt64(reinterpretAsUInt32(reverse(substring(address, 13, 4)))), 8),"
    " bitOr(bitShiftLeft(toUInt64(1), 56),"
    " bitShiftRight(reinterpretAsUInt64(reverse(substring(address, 1, 8))), 8)))"
)
_TOLD = (
    "count() AS sockets",
    "quantileExact(0.5)(rate) AS delivery_rate",
    "quantileExactOrNullIf(0.5)(1e6 * acked / busy, busy > 0) AS goodput",
    "quantileExact(0.5)(rtt) / 1000 AS rtt_ms",
    # The kernel says the largest number where it has none yet.
    "minOrNullIf(min_rtt, min_rtt > 0 AND min_rtt < 4294967295) / 1000 AS min_rtt_ms",
    "toFloat64(sum(acked)) AS bytes_acked",
    "toFloat64(sum(sent)) AS bytes_sent",
    "toFloat64(sum(again)) AS bytes_retransmitted",
)
_LAST = (
    "argMaxIf({rate:Identifier}, {time:Identifier}, {limited:Identifier} = 0) AS rate",
    "argMax({rtt:Identifier}, {time:Identifier}) AS rtt",
    "argMax({min_rtt:Identifier}, {time:Identifier}) AS min_rtt",
    "max({busy:Identifier}) AS busy",
    "max({acked:Identifier}) AS acked",
    "max({sent:Identifier}) AS sent",
    "max({again:Identifier}) AS again",
)


class ClickHouseSockets(SocketSource):
    """Rows of sockets in ClickHouse, one for each time that a socket was looked at, with the totals
    of its life. The columns are those of xtcp2 unless the inventory says otherwise."""

    fields: ClassVar[Mapping[str, Field]] = {
        **{name: ClickHouse.fields[name] for name in _SERVER},
        "table": Field(
            "the table or view, with its database",
            example="xtcp.xtcp_flat_records",
            pattern=rf"{_NAME}\.{_NAME}",
            default="xtcp.xtcp_flat_records",
        ),
        "addresses": Field(
            "how the client's address is kept: `raw`, its 4 or 16 bytes, or `text`, also of the "
            "types IPv4 and IPv6",
            example="raw",
            pattern="raw|text",
            default="raw",
        ),
        **{
            name: Field(f"the column of {meaning}", usual, _NAME, default=usual)
            for name, (meaning, usual) in _COLUMNS.items()
        },
    }

    def __init__(self, fields: Mapping[str, str], connections: Connections) -> None:
        self._fields = fields
        self._database, _, self._table = fields["table"].partition(".")

    def newest(self, now: float) -> int:
        return int((now - LATE) // ROUND) - 1

    def read(self, pop: Pop, number: int, least: int) -> PrefixRows:
        from edgetune.wings.congestion.rows import MEASURES, make_rows

        now, ends = clock.wall(), clock.monotonic() + _DEADLINE
        server = self._server(pop)
        where = server.where
        hosts = by_value(pop.hosts, self._fields["host_value"], where)
        named = {**self._names(_COLUMNS), **parameters_of([*hosts])}
        start, end = span_of(number)
        self._refuse_part(server, pop, hosts, (start, now + _FUTURE), ends)
        sql = _select([*parameters_of([*hosts])], self._fields["addresses"])
        ports = ",".join(map(str, sorted(ports_of(pop))))
        parameters = {**named, **_span(start, end), "ports": f"[{ports}]", "least": str(least)}
        columns = ("prefix", *MEASURES)
        rows = server.query(sql, parameters, columns, ends)
        by_column: Sequence[Sequence[Any]] = [*zip(*rows)] or [()] * len(columns)
        return make_rows(where, number, by_column[0], dict(zip(MEASURES, by_column[1:])))

    def _server(self, pop: Pop) -> Server:
        own = self._fields
        where = f"{pop.name}: ClickHouse at {own['url']}"
        return Server(where, own["url"], own["user"], own["password_file"], own["ca_file"])

    def _refuse_part(
        self,
        server: Server,
        pop: Pop,
        hosts: Mapping[str, str],
        span: tuple[float, float],
        ends: float,
    ) -> None:
        """SourceError where hosts have no row in the round, or one of the future."""
        parameters = {**self._names(["host", "time"]), **parameters_of([*hosts]), **_span(*span)}
        sql = (
            f"SELECT toString({{host:Identifier}}) AS named, min({_TIME}) AS oldest,"
            f" max({_TIME}) AS newest {_WITHIN} AND {is_one_of([*parameters_of([*hosts])])}"
            " GROUP BY named"
        )
        now, told = clock.wall(), set()
        for row in server.query(sql, parameters, ["named", "oldest", "newest"], ends):
            if row[0] not in hosts or type(row[1]) is not int or type(row[2]) is not int:
                raise server.wrong(f"a row was not asked for: {row}")
            ahead = row[2] / 1e6 - now
            if ahead > MOST_AHEAD:
                text = f"{hosts[row[0]]}: a row is {ahead:.0f} s in the future"
                raise server.wrong(f"{text}, so a clock is wrong")
            if row[1] / 1e6 < span[0] + ROUND:
                told.add(hosts[row[0]])
        refuse_part(server.where, pop, told)

    def _names(self, columns: Sequence[str] | Mapping[str, object]) -> dict[str, str]:
        own = {name: self._fields[name] for name in columns}
        return {"database": self._database, "table": self._table, **own}


def _span(start: float, end: float) -> dict[str, str]:
    return {"first": str(int(start * 1e6)), "until": str(int(end * 1e6))}


def _select(hosts: Sequence[str], addresses: str) -> str:
    """No text of a person, a host or a file stands in it."""
    sockets = (
        f"SELECT {_BYTES[addresses]} AS address, {', '.join(_LAST)} {_WITHIN}"
        f" AND {is_one_of(hosts)}"
        " AND {port:Identifier} IN {ports:Array(UInt32)}"
        " GROUP BY {host:Identifier}, {cookie:Identifier}, address"
        " HAVING countIf({limited:Identifier} = 0) > 0 AND rate > 0 AND length(address) IN (4, 16)"
    )
    return (
        f"SELECT {_PREFIX} AS prefix, {', '.join(_TOLD)} FROM ({sockets})"
        " GROUP BY prefix HAVING sockets >= {least:UInt32}"
    )


SOURCE = ClickHouseSockets
