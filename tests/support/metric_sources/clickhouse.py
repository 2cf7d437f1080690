# SPDX-License-Identifier: Apache-2.0
"""A table in which hosts write what they counted, read through HTTP as ClickHouse speaks it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Callable

from edgetune.intent.metrics.catalogue import METRICS
from edgetune.site.inventory import Host, Pop
from lab.clickhouse import ClickHouse, Engine, Table, serving, stand_in
from tests.support.chdb import chdb_or_skip
from tests.support.metric_sources import Begin, TestHosts

_COLUMNS = ("host", "time", "boot_id", "uptime", *METRICS.counters, "rx_bytes")
_HOSTS = ("e000", "e001", "e002")


class _Own:
    """What one host has counted."""

    def __init__(self) -> None:
        self.booted, self.boots = time.time() - 1000.0, 1
        self.counters: dict[str, float | None] = {"rx_packets": 5.0, "rx_bytes": 7.0}

    def row(self, name: str, at: float) -> dict[str, Any]:
        uptime = at - self.booted
        kept = {"host": name, "time": at, "boot_id": f"boot-{self.boots}", "uptime": uptime}
        return {**kept, **self.counters}


class Writers(TestHosts):
    """Hosts that write a row whenever something happens to them."""

    tells_health = tells_drift = False
    counters = sorted(set(METRICS.entries_of("clickhouse")) & set(METRICS.counters))

    def __init__(self, servers: Mapping[str, ClickHouse]) -> None:
        self.connections = SimpleNamespace(catalogue=METRICS)
        self._servers = servers
        self._of = {(pop, name): _Own() for pop in servers for name in _HOSTS}
        self._booted: dict[str, float] = {}
        for pop, name in self._of:
            self._write(pop, name)

    def fields(self, pop: str) -> Mapping[str, str]:
        return {"url": self._servers[pop].url, "table": "edge.hosts", "uptime": "uptime"}

    def count(self, host: Host, reading: str, value: float | None) -> None:
        self._own(host).counters[reading] = value
        self._write(*self._place(host))

    def boot(self, host: Host) -> None:
        own = self._own(host)
        own.boots, own.booted = own.boots + 1, time.time()
        own.counters = dict.fromkeys(own.counters, 0.0)
        self._write(*self._place(host))

    def go_silent(self, host: Host) -> None:
        pop, name = self._place(host)
        table = self._servers[pop].table
        others = [row for row in table.rows if row["host"] != name]
        table.rows[:] = [*others, self._own(host).row(name, time.time() - 61)]

    def go_away(self, pop: Pop) -> None:
        self._servers[pop.name].close()

    def uptime(self, host: Host) -> float:
        rows = self._servers[self._place(host)[0]].table.rows
        return float([row["uptime"] for row in rows if row["host"] == host.name][-1])

    def fall_ill(self, host: Host) -> None:
        pass

    def drift(self, host: Host, setting: str) -> None:
        raise NotImplementedError

    def oddities(self) -> Mapping[str, Callable[[Host], None]]:
        return {
            "below zero": self._oddity({"rx_packets": -5.0}),
            "no boot": self._oddity({"boot_id": None}),
            "an empty boot": self._oddity({"boot_id": ""}),
            "no uptime": self._oddity({"uptime": None}),
            "an uptime below zero": self._oddity({"uptime": -1.0}),
            "a time to come": self._oddity({"time": time.time() + 300}),
            "two rows": self._twice,
        }

    def _oddity(self, change: Mapping[str, Any]) -> Callable[[Host], None]:
        def make(host: Host) -> None:
            self._alone(host, [{**self._own(host).row(host.name, time.time()), **change}])

        return make

    def _twice(self, host: Host) -> None:
        row = self._own(host).row(host.name, time.time())
        self._alone(host, [row, {**row, "rx_packets": 6.0}])

    def _alone(self, host: Host, rows: list[dict[str, Any]]) -> None:
        table = self._servers[self._place(host)[0]].table
        others = [row for row in table.rows if row["host"] != host.name]
        table.rows[:] = [*others, *rows]

    def _write(self, pop: str, name: str) -> None:
        row = self._of[pop, name].row(name, time.time())
        self._servers[pop].table.rows.append(row)

    def _own(self, host: Host) -> _Own:
        return self._of[self._place(host)]

    def _place(self, host: Host) -> tuple[str, str]:
        """The contract's addresses say the PoP."""
        return f"lab{host.address.split('.')[2]}", host.name


def _written(engine: Callable[[], Engine]) -> Begin:
    @contextmanager
    def begin() -> Iterator[TestHosts]:
        with ExitStack() as stack:
            made = engine()
            stack.callback(getattr(made, "close", lambda: None))
            servers = {
                pop: stack.enter_context(serving(Table(_COLUMNS), made)) for pop in ("lab1", "lab2")
            }
            yield Writers(servers)

    return begin


MEASURED: Mapping[str, Begin] = {
    "answers": _written(lambda: stand_in),
    "chdb": _written(chdb_or_skip),
}
