# SPDX-License-Identifier: Apache-2.0
"""The load of a whole PoP, from samples that a test makes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetune.judge.limits import peak_load
from tests.support.builders import table_of

INTERVAL = 10.0
RATES = st.lists(st.floats(0, 1e6), min_size=1, max_size=6)

untimed = settings(deadline=None)


def _samples(host: str, rates: list[float], boots: dict[int, str] | None = None) -> list[Any]:
    """Samples of a host each 10 s; ``boots`` says at which of them it is in a new boot."""
    made: list[Any] = []
    packets, uptime, boot = 0.0, 1000.0, "first"
    for index, rate in enumerate([*rates, 0.0]):
        if boots and index in boots:
            packets, uptime, boot = 0.0, 5.0, boots[index]
        own = {"host": host, "time": 1000.0 + INTERVAL * index, "boot_id": boot, "uptime": uptime}
        made.append({**own, "counters": {"rx_packets": packets}, "gauges": {}})
        packets += INTERVAL * rate
        uptime += INTERVAL
    return made


def _later(row: Any, seconds: float, packets: float) -> Any:
    """A sample so much later, with so many packets more."""
    told = {"rx_packets": row["counters"]["rx_packets"] + packets}
    moved = {key: row[key] + seconds for key in ("time", "uptime")}
    return {**row, **moved, "counters": told}


def _peak(rows: list[Any]) -> float:
    return peak_load(table_of(rows), INTERVAL)


def _in_order(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: float(row["time"]))


def _about(rate: float, rel: float = 1e-6) -> Any:
    return pytest.approx(rate, rel=rel, abs=1e-6)


@untimed
@given(st.lists(st.tuples(*[st.floats(0, 1e6)] * 3), min_size=1, max_size=6))
def test_hosts_add_up_interval_by_interval(rows: list[tuple[float, float, float]]) -> None:
    hosts = dict(zip("abc", (list(rates) for rates in zip(*rows))))
    every = [row for host, rates in hosts.items() for row in _samples(host, rates)]
    for seen in (every, _in_order(every)):
        assert _peak(seen) == _about(max(map(sum, rows)))


@untimed
@given(RATES.filter(lambda rates: len(rates) > 2), st.data())
def test_a_reboot_is_an_idle_interval_and_never_a_surge(rates: list[float], data: Any) -> None:
    at = data.draw(st.integers(1, len(rates)))
    without = [rate for index, rate in enumerate(rates) if index != at - 1]
    assert _peak(_samples("a", rates, {at: "second"})) == _about(max(without))


def test_counters_of_two_boots_are_never_compared() -> None:
    """A host that was silent for long may have counted more in its new boot than in the old."""
    before, after = _samples("a", [0.0]), _samples("a", [0.0])
    for row in after:
        row.update(boot_id="second", time=row["time"] + 500, uptime=row["uptime"] + 100)
        row["counters"] = {"rx_packets": 1e9}
    assert _peak([*before, *after]) == 0.0


@untimed
@given(RATES, st.data())
def test_a_gap_never_makes_more_of_the_load(rates: list[float], data: Any) -> None:
    rows = _samples("a", rates)
    kept = data.draw(st.lists(st.sampled_from(range(len(rows))), unique=True))
    assert _peak([rows[index] for index in sorted(kept)]) <= max(rates) * (1 + 1e-6) + 1e-6


@untimed
@given(st.floats(1, 1e6), st.integers(2, 5), st.floats(0.1, 4.9))
def test_sweeps_that_overlap_count_no_packet_twice(rate: float, many: int, apart: float) -> None:
    """A rule and a rollout sample the same hosts, each in its own rhythm."""
    rows = _samples("a", [rate] * many)
    shifted = [_later(row, apart, rate * apart) for row in rows]
    assert _peak(_in_order([*rows, *shifted])) == _about(rate, rel=1e-3)


def test_a_sweep_that_ends_late_is_no_surge() -> None:
    """The sample that was read first is stored last: the host's counters seem to shrink."""
    rows = _samples("a", [100.0] * 4)
    rows[2]["time"], rows[3]["time"] = rows[3]["time"] + 0.1, rows[3]["time"]
    assert _peak(_in_order(rows)) == _about(100.0)


@pytest.mark.parametrize("apart", [0.01, 0.2, 0.9])
def test_sweeps_that_meet_are_no_surge(apart: float) -> None:
    """Two rules sample at the same moment, and the driver renewed its counter in between."""
    rows = _samples("a", [100.0] * 4)
    assert _peak([*rows[:3], _later(rows[2], apart, 200.0), *rows[3:]]) == _about(100.0)


@pytest.mark.parametrize(
    "packets", [None, math.nan, math.inf, 10**400], ids=["none", "nan", "inf", "huge"]
)
def test_packets_that_were_not_read_are_no_load(packets: Any) -> None:
    rows = _samples("a", [100.0, 100.0, 100.0])
    damaged = {**rows[1], "counters": {"rx_packets": packets}}
    assert _peak([rows[0], damaged, *rows[2:]]) == _about(100.0)
    assert _peak([{**row, "uptime": math.nan} for row in rows]) == 0.0
    # Nor is anything known without two samples.
    assert _peak([]) == _peak(rows[:1]) == 0.0
