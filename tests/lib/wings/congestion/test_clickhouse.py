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

from edgetune.agent.vocabulary.prefixes import text_of
from edgetune.base import clock
from edgetune.base.errors import InputError, SourceError
from edgetune.wings.congestion.rows import MEASURES
from edgetune.wings.congestion.source import span_of
from edgetune.wings.congestion.sources import open_source
from lab.clickhouse import Asked, Failed, Table, serving
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


@pytest.mark.parametrize("entry", ["as xtcp2 has it", "other columns"])
def test_each_socket_counts_once_with_what_was_seen_of_it_last(entry: str, tmp_path: Path) -> None:
    rows = read(tmp_path, recorded, ENTRIES[entry])
    assert rows.round == FIRST and [text_of(int(own)) for own in rows.prefixes] == [*EXPECTED]
    for row, own in enumerate(EXPECTED.values()):
        wanted = {name: math.nan if value is None else value for name, value in own.items()}
        found = {name: float(rows.measures[name][row]) for name in own}
        assert found == pytest.approx(wanted, nan_ok=True)


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
    ("of", "change", "says"),
    [
        # e002 never told anything; a host with later rows alone told nothing of the round.
        ("named", lambda rows: rows.pop(1), r"2 of 3 hosts told nothing \(e001, e002\)"),
        ("named", lambda rows: rows.clear(), "3 of 3 hosts told nothing"),
        ("named", lambda rows: _at(rows, 1, 301), "2 of 3 hosts told nothing"),
        (
            "named",
            lambda rows: _at(rows, 2, 1060),
            "e001: a row is 700 s in the future, so",
        ),
        ("named", lambda rows: rows.append(["e009", 1, 1]), "a row was not asked for"),
        # More of what is no row is in test_selection.py.
        ("prefix", lambda rows: rows.append(rows[0]), "a prefix comes twice"),
        ("prefix", lambda rows: [row.__setitem__(2, 10**15) for row in rows], "7 of 7 prefixes"),
        ("prefix", lambda rows: rows[0].pop(), "another number of columns"),
    ],
)
def test_an_answer_that_is_no_whole_round_is_told(
    of: str, change: Callable[[list[Any]], Any], says: str, tmp_path: Path
) -> None:
    assert len(read(tmp_path, recorded, {}))
    with pytest.raises(SourceError, match=f"^lab1: ClickHouse at .*{says}"):
        read(tmp_path, changed(change, of), {})


def _at(rows: list[Any], place: int, second: int) -> None:
    """The rows of a host begin, or end, at another time."""
    rows[1][place:] = [(START + second) * 10**6] * (3 - place)


def test_a_server_that_is_away_is_told(tmp_path: Path) -> None:
    source = open_source("clickhouse", {"url": "http://127.0.0.1:1"}, NO_CONNECTIONS)
    with pytest.raises(SourceError, match="lab1: ClickHouse at http://127.0.0.1:1: does not"):
        source.read(pop(tmp_path), FIRST, 1)
    # A round is read when its rows are there.
    _, end = span_of(FIRST)
    assert (source.newest(end + 59.9), source.newest(end + 60.0)) == (FIRST - 1, FIRST)


def test_a_pop_without_ports_is_no_pop_with_all_ports(tmp_path: Path) -> None:
    with serving(Table([]), recorded) as server, clock.use(RunningClock(START + 360.0)):
        source = open_source("clickhouse", {"url": server.url}, NO_CONNECTIONS)
        with pytest.raises(InputError, match=r"pops\.lab1\.ports: is empty"):
            source.read(replace(pop(tmp_path), ports=()), FIRST, 1)


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
            mock.patch("edgetune.wings.congestion.sources.clickhouse._DEADLINE", 1.0),
            pytest.raises(SourceError, match="its whole answer did not come in time"),
        ):
            read(tmp_path, slow, {})
    finally:
        end.set()
    with pytest.raises(SourceError, match="lab1: ClickHouse at .*answers 500: Code: 159"):
        read(tmp_path, slow, {})
    assert max(asked) <= 58 and min(asked) == 1
