# SPDX-License-Identifier: Apache-2.0
"""Sockets from a table of ClickHouse: what is read of it, and what of it passes for no round."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any
from unittest import mock

import pytest

from edgetune import clock
from edgetune.congestion.rows import MEASURES, PrefixRows
from edgetune.congestion.source import span_of
from edgetune.congestion.sources import open_source
from edgetune.errors import InputError, SourceError
from edgetune.inventory import Pop
from edgetune.vocabulary.prefixes import text_of
from lab.clickhouse import Asked, ClickHouse, Failed, Table
from tests.support.chdb import chdb_or_skip
from tests.support.congestion_sockets import (
    ENTRIES,
    EXPECTED,
    FILE,
    FIRST,
    NO_CONNECTIONS,
    START,
    loaded,
    pop,
    read,
    recorded,
    told_by,
)
from tests.support.virtual_clock import RunningClock


def as_told(rows: PrefixRows) -> dict[str, dict[str, float]]:
    return {
        text_of(int(prefix)): {name: float(rows.measures[name][row]) for name in MEASURES}
        for row, prefix in enumerate(rows.prefixes)
    }


@pytest.mark.parametrize("entry", ["as xtcp2 has it", "other columns"])
def test_each_socket_counts_once_with_what_was_seen_of_it_last(entry: str, tmp_path: Path) -> None:
    rows = read(tmp_path, recorded, ENTRIES[entry])
    found = as_told(rows)
    assert rows.round == FIRST and [*found] == [*EXPECTED]
    for prefix, own in EXPECTED.items():
        for name, value in own.items():
            there = found[prefix][name]
            assert math.isnan(there) if value is None else there == value, (prefix, name)


def test_chdb_answers_as_it_did(tmp_path: Path) -> None:
    chdb_or_skip().close()
    engine = loaded()
    try:
        assert told_by(tmp_path, engine) == json.loads(FILE.read_text())["told"]
    finally:
        engine.close()


@pytest.mark.parametrize("entry", ["a column that is none", "a table that is none"])
def test_what_clickhouse_says_is_told_with_pop_and_server(entry: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"lab1: ClickHouse at http://127.0.0.1:\d+: answers 500"):
        read(tmp_path, recorded, ENTRIES[entry])


def test_no_text_of_the_inventory_stands_in_the_sql(tmp_path: Path) -> None:
    sql: list[set[str]] = []
    for entry in ({}, {"table": "a.b", "rtt": "c", "host_value": "x'); DROP{name}"}):
        asked = set()

        def listen(_: Table, own: Asked, asked: set[str] = asked) -> str:
            asked.add(own.sql)
            hosts = own.parameters["hosts0"][2:-2].replace("\\'", "'").split("','")
            rows = [[host, START * 10**6, START * 10**6] for host in hosts]
            columns = ["named", "oldest", "newest"] if "named" in own.sql else ["prefix", *MEASURES]
            told = rows if "named" in own.sql else []
            return _answer(columns, told)

        assert not len(read(tmp_path, listen, entry))
        sql.append(asked)
    assert sql[0] == sql[1] and len(sql[0]) == 2


def _answer(columns: list[str], rows: list[Any]) -> str:
    meta = [{"name": name, "type": "x"} for name in columns]
    return json.dumps({"meta": meta, "data": rows, "rows": len(rows)})


def changed(change: Callable[[list[Any]], None], of: str) -> Callable[[Table, Asked], str]:
    """Answers as they were recorded, with the rows of one query changed."""

    def engine(table: Table, asked: Asked) -> str:
        answer = json.loads(recorded(table, asked))
        if answer["meta"][0]["name"] == of:
            change(answer["data"])
            answer["rows"] = len(answer["data"])
        return json.dumps(answer)

    return engine


@pytest.mark.parametrize(
    ("change", "says"),
    [
        # e002 never told anything; a host with later rows alone told nothing of the round.
        (lambda rows: rows.pop(1), r"2 of 3 hosts told nothing \(e001, e002\)"),
        (lambda rows: rows.clear(), "3 of 3 hosts told nothing"),
        (
            lambda rows: rows[1].__setitem__(slice(1, None), [(START + 301) * 10**6] * 2),
            "2 of 3 hosts told nothing",
        ),
        (
            lambda rows: rows[1].__setitem__(2, (START + 360 + 700) * 10**6),
            "e001: a row is 700 s in the future, so a clock",
        ),
        (lambda rows: rows.append(["e009", 1, 1]), "a row was not asked for"),
    ],
)
def test_a_round_that_half_of_the_hosts_told_nothing_of_is_none(
    change: Callable[[list[Any]], Any], says: str, tmp_path: Path
) -> None:
    read(tmp_path, recorded, {})
    with pytest.raises(SourceError, match=says):
        read(tmp_path, changed(change, "named"), {})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: rows.append(rows[0]), "a prefix comes twice"),
        (lambda rows: rows.append(["0.0.0.0/0", *rows[0][1:]]), "no whole number"),
        (lambda rows: rows.append([-1, *rows[0][1:]]), "a prefix is none"),
        (lambda rows: rows[0].__setitem__(2, None), "delivery_rate is not a number"),
        (lambda rows: rows[0].__setitem__(2, "1e400"), "delivery_rate is not a number"),
        (lambda rows: [row.__setitem__(2, 10**15) for row in rows], "7 of 7 prefixes"),
        (lambda rows: rows[0].pop(), "another number of columns"),
    ],
)
def test_an_answer_that_is_none_is_told(change: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"^lab1: ClickHouse at .*{says}"):
        read(tmp_path, changed(change, "prefix"), {})


def test_a_server_that_is_away_is_told(tmp_path: Path) -> None:
    source = open_source("clickhouse", {"url": "http://127.0.0.1:1"}, NO_CONNECTIONS)
    with pytest.raises(SourceError, match="lab1: ClickHouse at http://127.0.0.1:1: does not"):
        source.read(pop(tmp_path), FIRST, 1)
    # A round is read when its rows are there.
    _, end = span_of(FIRST)
    assert (source.newest(end + 59.9), source.newest(end + 60.0)) == (FIRST - 1, FIRST)


def test_a_server_that_is_too_busy_gives_no_round(tmp_path: Path) -> None:
    """It is asked to end by itself before, and has no longer than that."""
    asked: list[int] = []
    end = Event()

    def slow(_: Table, own: Asked) -> str:
        asked.append(int(own.settings["max_execution_time"]))
        if "named" in own.sql:
            return recorded(_, own)
        end.wait(30)
        raise Failed(159, "Code: 159. DB::Exception: Timeout exceeded: elapsed 58 seconds")

    try:
        with (
            mock.patch("edgetune.congestion.sources.clickhouse._DEADLINE", 1.0),
            pytest.raises(SourceError, match="its whole answer did not come in time"),
        ):
            read(tmp_path, slow, {})
    finally:
        end.set()
    with pytest.raises(SourceError, match="lab1: ClickHouse at .*answers 500: Code: 159"):
        read(tmp_path, slow, {})
    assert max(asked) <= 58 and min(asked) == 1


def test_a_pop_without_ports_is_no_pop_with_all_ports(tmp_path: Path) -> None:
    server = ClickHouse(Table([]), recorded)
    try:
        source = open_source("clickhouse", {"url": server.url}, NO_CONNECTIONS)
        none: Pop = replace(pop(tmp_path), ports=())
        at = clock.use(RunningClock(START + 360.0))
        with at, pytest.raises(InputError, match=r"pops\.lab1\.ports: is empty"):
            source.read(none, FIRST, 1)
    finally:
        server.close()
