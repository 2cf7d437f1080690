# SPDX-License-Identifier: Apache-2.0
"""Rounds of congestion control under faults on the hosts of a lab: what a seed says, what is seen
of it from outside, and one seed."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench import chaos
from bench._mutation import copy_checkout
from bench.chaos import breakage, clients, rounds, schedule
from bench.chaos.rounds import QUICK
from bench.chaos.rounds_schedule import BACK, ENDINGS, KINDS, NOT_BOTH, SOURCE, make_rounds
from bench.chaos.rounds_sight import RoundsWatch
from bench.chaos.stage import Report
from bench.chaos.told import Known
from edgetune.congestion.sources import open_source
from edgetune.inventories.yaml import YamlInventory
from edgetune.vocabulary.prefixes import number_of
from lab.clickhouse import ClickHouse, Table
from tests.support.builders import inventory_document, write_yaml

SEED = 17
"""Everything of a round dies while hosts are told; a person takes it back in the end."""


def test_a_seed_decides_everything() -> None:
    assert make_rounds(7) == make_rounds(7) != make_rounds(8)


def test_sixty_seeds_hold_every_fault_and_both_endings() -> None:
    drawn = [make_rounds(seed) for seed in range(1, 61)]
    assert {each.ending for each in drawn} == set(ENDINGS)
    assert {fault.kind for each in drawn for fault in each.faults} == set(KINDS)
    assert set(breakage.KINDS) == set(KINDS) | set(schedule.KINDS)
    assert {BACK, SOURCE} == set(KINDS) - set(schedule.KINDS)
    assert not any({fault.kind for fault in each.faults} >= NOT_BOTH for each in drawn)


@pytest.mark.slow
def test_the_quick_pack_is_of_the_code_that_there_is(tmp_path: Path) -> None:
    copy = copy_checkout(tmp_path, QUICK)
    assert all(edit.new in (copy / edit.file).read_text() for edit in QUICK)


@pytest.mark.processes
def test_rounds_are_run_by_a_word(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    run: list[Any] = []

    def pretend(schedule: Any, keep: bool, stop: Any) -> Report:
        run.append(schedule)
        return Report(schedule.seed, schedule.ending, "rounds", [], [], "expired", 1.0, [])

    monkeypatch.setattr(chaos, "run_rounds", pretend)
    monkeypatch.setattr(chaos, "missing_requirements", list)
    assert chaos.main(["--rounds", "--seeds", "4-5"]) == 0
    assert run == [make_rounds(4), make_rounds(5)]
    assert "2 seeds: 2 count and kept every promise" in capsys.readouterr().out


@pytest.mark.processes
def test_clients_are_read_as_by_any_round(tmp_path: Path) -> None:
    """By the source itself, of the same columns and types as those of ClickHouse."""
    server = ClickHouse(Table(()), clients.answer)
    try:
        inventory = write_yaml(tmp_path / "inventory.yaml", inventory_document(2))
        pop = YamlInventory(inventory).pop("lab1")
        source = open_source("clickhouse", {"url": server.url}, None)  # type: ignore[arg-type]
        number = source.newest(time.time())
        rows = source.read(pop, number, 1)
    finally:
        server.close()
    slow = clients.slow_at(number * 300)
    assert len(slow) == clients.SLOW and clients.SERVERS in slow
    assert sorted(rows.prefixes) == sorted(map(number_of, clients.PREFIXES))
    rates = dict(zip(rows.prefixes, rows.measures["delivery_rate"]))
    assert {own for own in clients.PREFIXES if rates[number_of(own)] < 1e5} == slow


def test_what_is_slow_moves_on_by_one() -> None:
    moved = clients.slow_at(0) ^ clients.slow_at(clients.MOVES)
    assert len(moved) == 2 and clients.SERVERS not in moved


def test_a_store_that_is_written_right_now_said_what_it_said_before(tmp_path: Path) -> None:
    store = tmp_path / "edgetune.sqlite"
    watch = RoundsWatch(tmp_path, store)
    watch.poll({})
    assert watch.sights[-1].known is None
    chosen = [{"prefix": "10.77.20.0/24", "held_out": True}, {"prefix": "x", "held_out": False}]
    with closing(sqlite3.connect(store, isolation_level=None)) as database:
        database.execute("CREATE TABLE records (key TEXT PRIMARY KEY, value TEXT)")
        database.execute("CREATE TABLE congestion (pop TEXT PRIMARY KEY, value TEXT)")
        decided = json.dumps({"number": 4, "state": "tuning"})
        database.execute("INSERT INTO records VALUES ('edgetune.congestion.lab1', ?)", [decided])
        kept = json.dumps({"selection": json.dumps({"chosen": chosen})})
        database.execute("INSERT INTO congestion VALUES ('lab1', ?)", [kept])
        watch.poll({})
        known = Known(4, "tuning", frozenset(["10.77.20.0/24"]))
        assert watch.sights[-1].known == known
        assert watch.chosen == {"10.77.20.0/24", "x"}
        database.execute("BEGIN EXCLUSIVE")
        watch.poll({})
        assert watch.sights[-1].known == known


@pytest.mark.lab
@pytest.mark.long
@pytest.mark.skipif(bool(chaos.missing_requirements()), reason="the lab cannot run here")
def test_a_seed_of_rounds_keeps_every_promise() -> None:
    report = rounds.run_rounds(make_rounds(SEED))
    assert (report.broken, report.because) == ([], "")
