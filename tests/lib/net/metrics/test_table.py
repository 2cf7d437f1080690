# SPDX-License-Identifier: Apache-2.0
"""Samples as columns."""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.documents.sample import Sample
from edgetune.base.documents.table import SampleTable
from tests.support.examples import examples

NAMES = ("p", "q", "r", "h:0", "h:1", "h:7", "h:07", "g:7", "g:9999", "g:10000", ":3")
amounts = st.floats(0, 1e300) | st.integers(0, 2**33).map(float)
readings_of = st.dictionaries(st.sampled_from(NAMES), amounts, max_size=5)
samples_of = st.builds(
    Sample,
    host=st.sampled_from(["e0", "e1", "e2"]),
    time=st.just(0.0),
    boot_id=st.sampled_from(["b0", "b1"]),
    uptime=st.floats(0, 1e9),
    counters=readings_of,
    gauges=readings_of,
)
sweeps_of = st.lists(st.lists(samples_of, min_size=1, max_size=4), max_size=6)


def _timed(sweeps: list[list[Sample]]) -> list[list[Sample]]:
    return [[replace(row, time=float(time)) for row in own] for time, own in enumerate(sweeps)]


def _table(sweeps: list[list[Sample]]) -> SampleTable:
    """Every third sweep from its stored document, every third as another table."""
    table = SampleTable()
    for number, own in enumerate(sweeps):
        if number % 3 == 0:
            table.add_document(json.loads(json.dumps(SampleTable(own).document())))
        elif number % 3 == 1:
            table.add_rows(own)
        else:
            table.add_table(SampleTable(own))
    return table


def _column(rows: list[Sample], kind: str, name: str) -> list[float]:
    return [getattr(row, kind).get(name, -1.0) for row in rows]


def _known(column: Any) -> list[float]:
    return [-1.0 if math.isnan(value) else value for value in column]


@examples(200)
@given(sweeps_of, st.integers(-1, 6), st.integers(-1, 6))
def test_a_table_holds_what_was_added_however_it_was(
    sweeps: list[list[Sample]], start: int, end: int
) -> None:
    rows = [row for own in _timed(sweeps) for row in own]
    for table, expected in (
        (_table(_timed(sweeps)), rows),
        (SampleTable(rows), rows),
        (SampleTable(rows).between(start, end), [r for r in rows if start <= r.time <= end]),
        (
            _table(_timed(sweeps)).between(start, end),
            [r for r in rows if start <= r.time <= end],
        ),
    ):
        assert [*table.rows()] == expected
        assert len(table) == len(expected)
        for name in ("p", "q", *NAMES[3:]):
            assert _known(table.counter(name)) == _column(expected, "counters", name)
            assert _known(table.gauge(name)) == _column(expected, "gauges", name)
        assert table.latest_gauges() == {row.host: row.gauges for row in expected}
        backwards = range(len(expected))[::-1]
        assert table.gauges_of(backwards) == [row.gauges for row in expected[::-1]]


def buckets(*columns: tuple[int, list[float]]) -> dict[str, Any]:
    """A stored document of two hosts with these buckets of ``h``."""
    counters = [{f"h:{number}": own[row] for number, own in columns} for row in (0, 1)]
    rows = [Sample(f"e{row}", 0.0, "b", 1.0, own, {}) for row, own in enumerate(counters)]
    document: dict[str, Any] = json.loads(json.dumps(SampleTable(rows).document()))
    return document


def test_buckets_stand_together_and_take_little_room() -> None:
    kept = buckets(*((number, [number * 1000.0, 0.0]) for number in range(200)))
    assert not kept["counters"] and kept["buckets"]["h"].startswith("0-199 ")
    # Each had a column of two numbers before, with its name.
    assert len(json.dumps(kept["buckets"])) < 200 * 8
    assert (
        buckets((3, [1.0, 2.0]), (4, [1.0, 2.0]), (9, [1.0, 2.0]))["buckets"]["h"][:6] == "3-4,9 "
    )


def test_what_is_no_whole_number_of_32_bits_has_a_column_of_its_own() -> None:
    kept = buckets((1, [1.5, 2.0]), (2, [2.0**32, 2.0]), (3, [2.0**32 - 1, 2.0]), (4, [2.0, 3.0]))
    assert {*kept["counters"]} == {"h:1", "h:2", "h:3"}
    assert kept["buckets"]["h"].startswith("4 ")


def read(kept: dict[str, Any]) -> list[float]:
    table = SampleTable()
    table.add_document(kept)
    assert len(table) == 2
    return _known(table.counter("h:1"))


def test_buckets_of_earlier_versions_are_read() -> None:
    kept = buckets()
    column = base64.b64encode(struct.pack("<2I", 5, 2**32 - 1)).decode()
    assert read({**kept, "counters": {"h:1": f"u4:{column}"}}) == [5.0, -1.0]


@pytest.mark.parametrize(
    "damaged",
    [
        *("", "1", "0-1", "1-0 ", "1,1 ", "0-99999 ", "x ", "-1 ", "1-2-3 ", "01 ", "\u0661 "),
        *("1 !", "1 AAAA", 7, None, [], {}),
    ],
)
def test_damaged_buckets_are_as_those_that_were_not_read(damaged: object) -> None:
    good = buckets((0, [3.0, 3.0]), (1, [5.0, 7.0]))
    assert read(good) == [5.0, 7.0]
    if isinstance(damaged, str) and damaged.endswith(" "):
        # Its columns alone are well.
        damaged += good["buckets"]["h"].partition(" ")[2]
    assert read({**good, "buckets": {"h": damaged}}) == [-1.0, -1.0]
    assert read({**good, "buckets": damaged}) == [-1.0, -1.0]


def test_buckets_that_are_too_many_or_too_few_for_their_hosts_are_not_read() -> None:
    good = buckets((0, [3.0, 3.0]), (1, [5.0, 7.0]))
    packed = good["buckets"]["h"].partition(" ")[2]
    for told in ("1", "0-2"):
        assert read({**good, "buckets": {"h": f"{told} {packed}"}}) == [-1.0, -1.0]
    cut = base64.b64encode(base64.b64decode(packed)[:-6]).decode()
    assert read({**good, "buckets": {"h": f"0-1 {cut}"}}) == [-1.0, -1.0]
    bomb = base64.b64encode(zlib.compress(bytes(10**7))).decode()
    assert read({**good, "buckets": {"h": f"0-1 {bomb}"}}) == [-1.0, -1.0]
