# SPDX-License-Identifier: Apache-2.0
"""The SQL of ``edgetune.net.clickhouse`` is what ClickHouse was asked when it was recorded."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from edgetune.intent.metrics.catalogue import METRICS
from edgetune.net.metrics.sources.clickhouse import ClickHouse
from lab.clickhouse import Chdb, Table, serving, stand_in
from tests.support import ROOT
from tests.support.chdb import chdb_or_skip
from tests.support.clickhouse_recorded import FILE, NOON, pop_of, told_by

TOLD = json.loads(FILE.read_text(encoding="utf-8"))["told"]
FAILED = {name for name, own in TOLD.items() if "code" in own[-1]["answer"]}


def test_the_stand_in_answers_as_clickhouse_did(tmp_path: Path) -> None:
    told = told_by(tmp_path, stand_in)
    for name in told.keys() - FAILED:
        assert told[name] == TOLD[name]


@pytest.fixture
def chdb() -> Iterator[Chdb]:
    engine = chdb_or_skip()
    yield engine
    engine.close()


def test_clickhouse_answers_as_it_did(tmp_path: Path, chdb: Chdb) -> None:
    told = told_by(tmp_path, chdb)
    for name in told.keys() - FAILED:
        assert told[name] == TOLD[name]
    for name in FAILED:
        assert told[name][-1]["answer"]["code"] == TOLD[name][-1]["answer"]["code"]


PAGE = (ROOT / "docs/how-to/clickhouse.md").read_text(encoding="utf-8")
SQL = re.findall(r"```sql\n(CREATE (?:TABLE|VIEW).*?)```", PAGE, re.DOTALL)


@pytest.fixture
def shown(chdb: Chdb) -> Chdb:
    """The tables and the view of the page."""
    chdb.run("CREATE DATABASE edge")
    for text in SQL:
        chdb.run(text)
    return chdb


def _window(folder: Path, chdb: Chdb, at: float, entry: Mapping[str, str]) -> list[Any]:
    with serving(Table(()), lambda _, asked: chdb.answer(asked)) as server:
        pop = pop_of(folder, {"url": server.url, **entry})
        return list(ClickHouse(mock.Mock(catalogue=METRICS)).window(pop, at, at + 60).rows())


def test_the_table_of_the_page_has_all_counters(tmp_path: Path, shown: Chdb) -> None:
    # An older row would be past its TTL.
    at = int(time.time())
    # cpu_total_ms is of records of version 0.7.
    counters = [name for name in METRICS.counters if name != "cpu_total_ms"]
    names = ", ".join(("time", "host", "boot_id", "uptime", *counters))
    counted = ", ".join(map(str, range(len(counters))))
    shown.run(f"INSERT INTO edge.hosts ({names}) VALUES ({at}, 'e000', 'b', 7.5, {counted})")
    (only,) = _window(tmp_path, shown, at, {"uptime": "uptime"})
    assert (only.host, only.boot_id, only.uptime) == ("e000", "b", 7.5)
    assert only.counters == {name: float(value) for value, name in enumerate(counters)}


def test_the_view_of_the_page_is_such_a_table(tmp_path: Path, shown: Chdb) -> None:
    rows = [
        (NOON, "node_boot_time_seconds", NOON - 900),
        (NOON, "node_network_receive_packets_total", 3),
        (NOON, "node_network_receive_packets_total", 4),
        (NOON + 15, "node_network_receive_packets_total", 9),
    ]
    values = ", ".join(f"({at}, 'e001', '{name}', {value})" for at, name, value in rows)
    shown.run(f"INSERT INTO edge.scraped VALUES {values}")
    entry = {"table": "edge.hosts_of_scraped", "boot": "boot_time"}
    (only,) = _window(tmp_path, shown, NOON, entry)
    assert (only.host, only.uptime, only.counters) == ("e001", 900.0, {"rx_packets": 7.0})
