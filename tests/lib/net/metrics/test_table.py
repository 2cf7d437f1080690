# SPDX-License-Identifier: Apache-2.0
"""Samples as columns."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.documents.sample import Sample
from edgetune.base.documents.table import SampleTable
from tests.support.examples import examples

readings_of = st.dictionaries(st.sampled_from("pqr"), st.floats(0, 1e300), max_size=3)
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
        for name in "pq":
            assert _known(table.counter(name)) == _column(expected, "counters", name)
            assert _known(table.gauge(name)) == _column(expected, "gauges", name)
        assert table.latest_gauges() == {row.host: row.gauges for row in expected}
        backwards = range(len(expected))[::-1]
        assert table.gauges_of(backwards) == [row.gauges for row in expected[::-1]]
