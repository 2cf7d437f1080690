# SPDX-License-Identifier: Apache-2.0
"""The load of a whole PoP, from samples that a test makes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetune.judge.surge import peak_load
from tests.support.builders import table_of

INTERVAL = 10.0
RATES = st.lists(st.floats(0, 1e6), min_size=1, max_size=6)


def _samples(host: str, rates: list[float], boots: dict[int, str] | None = None) -> list[Any]:
    """Samples of a host each 10 s; ``boots`` says at which of them it is in a new boot."""
    made: list[Any] = []
    packets, uptime, boot = 0.0, 1000.0, "first"
    for index in range(len(rates) + 1):
        if boots and index in boots:
            packets, uptime, boot = 0.0, 5.0, boots[index]
        made.append(
            {
                "host": host,
                "time": 1000.0 + INTERVAL * index,
                "boot_id": boot,
                "uptime": uptime,
                "counters": {"rx_packets": packets},
                "gauges": {},
            }
        )
        packets += INTERVAL * (rates[index] if index < len(rates) else 0)
        uptime += INTERVAL
    return made


@settings(deadline=None)
@given(RATES)
def test_one_host_carries_its_largest_rate(rates: list[float]) -> None:
    assert peak_load(table_of(_samples("a", rates)), INTERVAL) == pytest.approx(
        max(rates), rel=1e-6, abs=1e-6
    )


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.floats(0, 1e6)] * 3), min_size=1, max_size=6))
def test_hosts_add_up_interval_by_interval(rows: list[tuple[float, float, float]]) -> None:
    hosts = dict(zip("abc", (list(rates) for rates in zip(*rows))))
    rows_in_order = [row for host, rates in hosts.items() for row in _samples(host, rates)]
    expected = max(sum(row) for row in rows)
    for rows_seen in (rows_in_order, sorted(rows_in_order, key=lambda row: float(row["time"]))):
        assert peak_load(table_of(rows_seen), INTERVAL) == pytest.approx(
            expected, rel=1e-6, abs=1e-6
        )


@settings(deadline=None)
@given(RATES.filter(lambda rates: len(rates) > 2), st.data())
def test_a_reboot_is_an_idle_interval_and_never_a_surge(rates: list[float], data: Any) -> None:
    at = data.draw(st.integers(1, len(rates)))
    without = [rate for index, rate in enumerate(rates) if index != at - 1]
    load = peak_load(table_of(_samples("a", rates, {at: "second"})), INTERVAL)
    assert load == pytest.approx(max(without, default=0), rel=1e-6, abs=1e-6)


def test_counters_of_two_boots_are_never_compared() -> None:
    """A host that was silent for long may have counted more in its new boot than in the old."""
    before, after = _samples("a", [0.0]), _samples("a", [0.0])
    for row in after:
        row.update(boot_id="second", time=row["time"] + 500, uptime=row["uptime"] + 100)
        row["counters"] = {"rx_packets": 1e9}
    assert peak_load(table_of([*before, *after]), INTERVAL) == 0.0


@settings(deadline=None)
@given(RATES, st.data())
def test_a_gap_never_makes_more_of_the_load(rates: list[float], data: Any) -> None:
    rows = _samples("a", rates)
    kept = data.draw(st.lists(st.sampled_from(range(len(rows))), unique=True))
    load = peak_load(table_of([rows[index] for index in sorted(kept)]), INTERVAL)
    assert load <= max(rates) * (1 + 1e-6) + 1e-6


@settings(deadline=None)
@given(st.floats(1, 1e6), st.integers(2, 5), st.floats(0.1, 4.9))
def test_sweeps_that_overlap_count_no_packet_twice(rate: float, many: int, apart: float) -> None:
    """A rule and a rollout sample the same hosts, each in its own rhythm."""
    rows = _samples("a", [rate] * many)
    shifted = [
        {
            **row,
            "time": row["time"] + apart,
            "uptime": row["uptime"] + apart,
            "counters": {"rx_packets": row["counters"]["rx_packets"] + rate * apart},
        }
        for row in rows
    ]
    both = sorted([*rows, *shifted], key=lambda row: float(row["time"]))
    assert peak_load(table_of(both), INTERVAL) == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_sweep_that_ends_late_is_no_surge(swapped: bool) -> None:
    """The sample that was read first is stored last: the host's counters seem to shrink."""
    rows = _samples("a", [100.0] * 4)
    if swapped:
        rows[2]["time"], rows[3]["time"] = rows[3]["time"] + 0.1, rows[3]["time"]
        rows.sort(key=lambda row: float(row["time"]))
    assert peak_load(table_of(rows), INTERVAL) == pytest.approx(100.0)


@pytest.mark.parametrize("apart", [0.01, 0.2, 0.9])
def test_sweeps_that_meet_are_no_surge(apart: float) -> None:
    """Two rules sample at the same moment, and the driver renewed its counter in between."""
    rows = _samples("a", [100.0] * 4)
    renewed = {"rx_packets": rows[2]["counters"]["rx_packets"] + 200.0}
    late = {**rows[2], "counters": renewed}
    late.update(time=rows[2]["time"] + apart, uptime=rows[2]["uptime"] + apart)
    assert peak_load(table_of([*rows[:3], late, *rows[3:]]), INTERVAL) == pytest.approx(100.0)


@pytest.mark.parametrize("samples", [[], _samples("a", [])])
def test_without_two_samples_nothing_is_known(samples: list[Any]) -> None:
    assert peak_load(table_of(samples), INTERVAL) == 0.0


@pytest.mark.parametrize(
    "packets", [None, math.nan, math.inf, 10**400], ids=["none", "nan", "inf", "huge"]
)
def test_packets_that_were_not_read_are_no_load(packets: Any) -> None:
    rows = _samples("a", [100.0, 100.0, 100.0])
    damaged = {**rows[1], "counters": {"rx_packets": packets}}
    assert peak_load(table_of([rows[0], damaged, *rows[2:]]), INTERVAL) == pytest.approx(100.0)
    assert peak_load(table_of([{**row, "uptime": math.nan} for row in rows]), INTERVAL) == 0.0
