# SPDX-License-Identifier: Apache-2.0
"""From samples to arrays: growth by slot, exposures, flaws and what is refused."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.documents.metric import Metric
from edgetune.base.errors import InputError
from edgetune.intent.metrics.catalogue import METRICS, PACK_METRICS, Catalogue
from edgetune.judge.series import REBOOTED, Window, join, read_window
from tests.support import ROOT
from tests.support.builders import metrics_named, table_of
from tests.support.examples import examples

NAN = math.nan


def _sample(time: float, host: str = "a", boot: str = "b", **more: Any) -> dict[str, Any]:
    """A sample with ``more`` counters; ``gauges`` and ``uptime`` are told by these names."""
    return {
        "host": host,
        "time": time,
        "boot_id": boot,
        "uptime": more.pop("uptime", time),
        "gauges": more.pop("gauges", {}),
        "counters": more,
    }


def _read(samples: list[dict[str, Any]], *metrics: str, **more: Any) -> Window:
    given = {"hosts": ["a"], "start": 100.0, "end": 140.0, "slot": 20.0}
    judged = metrics_named(*metrics or ("listen_drops",))
    return read_window(table_of(samples), **{"metrics": judged, **given, **more})


def _events(window: Window, metric: str = "listen_drops") -> Any:
    return window.metrics[metric].events.tolist()


def test_growth_belongs_to_the_slot_of_the_middle_of_its_samples() -> None:
    rows = [_sample(time, listen_drops=time) for time in (90.0, 106.0, 116.0, 130.0, 148.0)]
    window = _read(rows)
    # Middles: 98 is before the window; 111; 123; 139.
    assert _events(window) == [[10, 14 + 18]]
    assert window.metrics["listen_drops"].exposure.tolist() == [[10, 32]]
    assert window.exposures == {"listen_drops": "seconds"}


def test_both_ends_are_as_said() -> None:
    rows = [_sample(time, listen_drops=time) for time in (95.0, 105.0, 115.0, 135.0, 145.0)]
    # The middles 100 and 140 are on the ends: the window is open at its start.
    assert _events(_read(rows)) == [[10, 20 + 10]]
    assert _read(rows).samples.tolist() == [2]
    edges = _read([_sample(time, listen_drops=0) for time in (100.0, 140.0)])
    assert (edges.samples.tolist(), edges.newest.tolist()) == ([2], [140])
    assert np.isnan(_events(_read([]))).all()


def test_what_is_not_known_is_nan() -> None:
    rows = [_sample(time, listen_drops=3) for time in (100.0, 110.0)]
    window = _read(rows, hosts=["a", "silent"])
    np.testing.assert_array_equal(_events(window), [[0, NAN], [NAN, NAN]])
    np.testing.assert_array_equal(window.newest, [110, NAN])
    assert window.samples.tolist() == [1, 0]
    assert np.isnan(window.packets).all()


def test_the_hosts_own_clock_gives_the_order() -> None:
    """Two sweeps overlap: what was read first is stored last."""
    rows = [
        _sample(104.0, listen_drops=0, uptime=4.0),
        _sample(113.0, listen_drops=10, uptime=10.0),
        _sample(112.0, listen_drops=11, uptime=11.0),
    ]
    window = _read(rows)
    assert _events(window)[0][0] == 11
    assert window.metrics["listen_drops"].exposure[0, 0] == 7
    assert window.flaws == {}


def test_drops_and_misses_are_one_sum() -> None:
    rows = [_sample(100.0 + t, rx_dropped=2 * t, rx_missed=3 * t) for t in (0, 10)]
    assert _events(_read(rows, "packet_drops"), "packet_drops")[0][0] == 50
    alone = [_sample(100.0 + t, rx_dropped=t) for t in (0, 10)]
    assert np.isnan(_read(alone, "packet_drops").metrics["packet_drops"].events).all()


def test_packets_are_the_exposure_where_every_host_counts_them() -> None:
    both = [
        _sample(time, host, listen_drops=time, rx_packets=7 * time)
        for time in (100.0, 110.0)
        for host in "ab"
    ]
    window = _read(both, hosts=["a", "b", "silent"])
    assert window.exposures == {"listen_drops": "rx_packets"}
    assert window.metrics["listen_drops"].exposure[:2, 0].tolist() == [70, 70]
    assert window.packets[:2, 0].tolist() == [7, 7]

    for row in both:
        if row["host"] == "b":
            del row["counters"]["rx_packets"]
    window = _read(both, hosts=["a", "b"])
    assert window.exposures == {"listen_drops": "seconds"}
    assert window.metrics["listen_drops"].exposure[:, 0].tolist() == [10, 10]


def test_a_soak_is_read_as_its_baseline_was() -> None:
    rows = [_sample(time, listen_drops=time) for time in (100.0, 110.0)]
    window = _read(rows, exposures={"listen_drops": "rx_packets"})
    assert window.exposures == {"listen_drops": "rx_packets"}
    assert np.isnan(window.metrics["listen_drops"].exposure).all()
    assert np.isnan(window.metrics["listen_drops"].events).all()
    rich = [_sample(time, listen_drops=time, rx_packets=9) for time in (100.0, 110.0)]
    window = _read(rich, exposures={"listen_drops": "seconds"})
    assert window.metrics["listen_drops"].exposure[0, 0] == 10


def test_retransmits_are_per_segment_and_never_per_second() -> None:
    rows = [_sample(t, tcp_retransmits=t, tcp_segments_out=100 * t) for t in (100.0, 110.0)]
    window = _read(rows, "retransmits")
    assert window.exposures == {"retransmits": "tcp_segments_out"}
    assert window.metrics["retransmits"].exposure[0, 0] == 1000
    window = _read([_sample(t, tcp_retransmits=t) for t in (100.0, 110.0)], "retransmits")
    assert np.isnan(window.metrics["retransmits"].events).all()


def test_a_gauge_is_the_sum_and_the_number_of_its_readings() -> None:
    readings = [(100.0, 50.0), (104.0, 2.0), (120.0, 4.0), (121.0, 1.0)]
    rows = [_sample(time, gauges={"health_slowest_ms": value}) for time, value in readings]
    rows.append(_sample(130.0))
    rows.append(_sample(131.0, gauges={"health_slowest_ms": None}))
    # One that is stored twice counts once.
    for window in (_read(rows, "health_slowest"), _read([*rows, rows[1]], "health_slowest")):
        assert _events(window, "health_slowest") == [[6, 1]]
        assert window.metrics["health_slowest"].exposure.tolist() == [[2, 1]]
        assert window.exposures == {"health_slowest": "readings"}
        assert 0 < window.coverage.known["health_slowest"][0] < window.coverage.watched[0]
        assert window.coverage.unread["health_slowest_ms"][0] > 0


def test_counters_of_two_boots_are_never_compared() -> None:
    rows = [
        _sample(100.0, listen_drops=5),
        _sample(110.0, listen_drops=6),
        _sample(120.0, boot="second", listen_drops=900, uptime=3.0),
        _sample(130.0, boot="second", listen_drops=904, uptime=13.0),
    ]
    window = _read(rows)
    assert _events(window) == [[1, 4]]
    assert window.flaws == {"a": REBOOTED}
    assert _read(rows, start=112.0).flaws == {}


@pytest.mark.parametrize(
    "old, new, how",
    [
        (4294967200, 17, "it wrapped at 32 bits"),
        (2**31, 2**31 - 1, "it wrapped at 32 bits"),
        (2**31 - 1, 17, "it was reset"),
        (2**32, 17, "it was reset"),
        (2**32 - 1, 2**31, "it was reset"),
        (90, 3, "it was reset"),
    ],
)
def test_a_counter_that_shrinks_is_a_flaw(old: int, new: int, how: str) -> None:
    rows = [_sample(100.0, listen_drops=old), _sample(110.0, listen_drops=new)]
    rows += [_sample(time, listen_drops=new + 5) for time in (118.0, 126.0)]
    window = _read(rows)
    assert window.flaws == {"a": f"listen_drops fell from {old} to {new}: {how}"}
    np.testing.assert_array_equal(_events(window), [[NAN, 0]])
    np.testing.assert_array_equal(window.metrics["listen_drops"].exposure, [[NAN, 8]])


def test_cpu_time_that_falls_by_a_few_ticks_was_not_reset() -> None:
    """As seen on a virtual machine under load."""
    seen = (99879760, 99879750, 99881000)
    rows = [_sample(100.0 + 8 * i, cpu_busy_ms=busy) for i, busy in enumerate(seen)]
    window = _read(rows, "cpu")
    assert window.flaws == {}
    np.testing.assert_array_equal(_events(window, "cpu"), [[1250, NAN]])
    rows[1] = _sample(108.0, cpu_busy_ms=seen[0] - 1001)
    assert "cpu_busy_ms fell from" in _read(rows, "cpu").flaws["a"]


def test_of_two_agents_that_read_at_once_none_saw_a_reset() -> None:
    """As seen on a lab under load: one read its counters first, and the clock last."""
    rows = [_sample(100.0, listen_drops=1960), _sample(110.0, listen_drops=1971)]
    rows += [_sample(110.4, listen_drops=1970), _sample(118.0, listen_drops=1980)]
    window = _read(rows)
    assert window.flaws == {}
    np.testing.assert_array_equal(_events(window), [[11 + 0 + 10, NAN]])
    for later, drops in ((112.0, 1970), (110.4, 985)):
        rows[2] = _sample(later, listen_drops=drops)
        assert "it was reset" in _read(rows).flaws["a"]


def test_the_first_flaw_of_the_window_is_told_and_goes_before_a_reboot() -> None:
    rows = [_sample(100.0 + 5 * i, listen_drops=drops) for i, drops in enumerate((9, 3, 8, 7))]
    rows.append(_sample(130.0, boot="second", listen_drops=0, uptime=1.0))
    before = [_sample(80.0, listen_drops=99), _sample(90.0, listen_drops=9)]
    assert _read([*before, *rows]).flaws == {"a": "listen_drops fell from 9 to 3: it was reset"}
    # One that fell does not hide behind another one of the same metric.
    both = [(0, 50), (900, 0)]
    rows = [_sample(100.0 + t, rx_dropped=a, rx_missed=b) for t, (a, b) in zip((0, 10), both)]
    assert "rx_missed fell from 50 to 0" in _read(rows, "packet_drops").flaws["a"]


NO_NUMBERS = [-4, NAN, math.inf, pytest.param(10**400, id="huge"), "12", True, None]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=str)
def test_a_number_that_is_none_was_not_read(value: Any) -> None:
    """One damaged sample of one host costs no other host its comparison."""
    rows = [_sample(100.0 + 10 * i, "e001", listen_drops=i, rx_packets=i) for i in range(5)]
    rows += [{**row, "host": "e003"} for row in rows]
    rows[7] = _sample(120.0, "e003", listen_drops=value, rx_packets=2)
    window = _read(rows, hosts=["e001", "e003"], slot=10.0)
    np.testing.assert_array_equal(_events(window), [[1] * 4, [1, NAN, NAN, 1]])
    np.testing.assert_array_equal(window.packets, [[0.1] * 4] * 2)
    assert window.coverage.unread["listen_drops"].tolist() == [0, 20]
    readings = ((110.0, value), (112.0, 3.0))
    gauge = [_sample(time, gauges={"health_slowest_ms": own}) for time, own in readings]
    assert _events(_read(gauge, "health_slowest"), "health_slowest")[0][0] == 3


@pytest.mark.parametrize("value", NO_NUMBERS, ids=str)
@pytest.mark.parametrize("field", ["time", "uptime"])
def test_a_sample_without_its_time_is_left_out(field: str, value: Any) -> None:
    rows = [_sample(time, listen_drops=time) for time in (100.0, 110.0, 118.0)]
    rows.append({**_sample(115.0, listen_drops=0), field: value})
    window = _read(rows)
    assert (_events(window)[0][0], window.flaws, window.newest.tolist()) == (18, {}, [118])


def _covered(rows: list[dict[str, Any]], metric: str, **more: Any) -> tuple[Any, ...]:
    coverage = _read(rows, metric, "packets", **more).coverage
    known = [coverage.known[name].tolist() for name in (metric, "packets")]
    return (coverage.watched.tolist(), *known)


def test_measured_zero_never_measured_and_stopped_are_three_things() -> None:
    times = [100.0 + 10 * i for i in range(5)]
    zero = [_sample(time, listen_drops=7) for time in times]
    assert _covered(zero, "listen_drops") == ([40], [40], [0])
    never = [_sample(time, rx_packets=0) for time in times]
    assert _covered(never, "listen_drops") == ([40], [0], [40])
    stopped = [*zero[:3], *(_sample(time) for time in times[3:])]
    assert _covered(stopped, "listen_drops") == ([40], [20], [0])
    assert _covered([], "listen_drops") == ([0], [0], [0])
    # One that is sampled more often accuses no other.
    often = [_sample(100.0 + 2.5 * i, "c", listen_drops=0) for i in range(17)]
    assert _read([*often, *zero], hosts=["a", "c"], slot=10.0).samples.tolist() == [4, 4]


def test_a_metric_without_what_it_is_compared_per_is_not_measured() -> None:
    times = [100.0 + 10 * i for i in range(5)]
    rows = [_sample(time, tcp_retransmits=1) for time in times]
    window = _read(rows, "retransmits")
    assert window.coverage.known["retransmits"].tolist() == [0]
    assert window.coverage.unread["tcp_segments_out"].tolist() == [40]
    rows = [_sample(time, rx_dropped=1, rx_missed=None) for time in times]
    window = _read(rows, "packet_drops")
    assert window.coverage.known["packet_drops"].tolist() == [0]
    unread = {name: own.tolist() for name, own in window.coverage.unread.items()}
    assert unread == {"rx_dropped": [0], "rx_missed": [40]}


def test_the_boots_of_a_window_are_those_of_its_first_and_last_sample() -> None:
    rows = [_sample(time, boot=boot, uptime=1.0) for time, boot in ((100, "one"), (110, "two"))]
    rows += [_sample(120.0, boot="two"), _sample(150.0, boot="three")]
    assert _read(rows, hosts=["a", "silent"]).boots == {"a": ("two", "two")}
    assert _read(rows, start=90.0).boots == {"a": ("one", "two")}
    parts = [_read(rows, start=90.0 + 20 * i, end=110.0 + 20 * i) for i in range(4)]
    assert join(parts).boots == {"a": ("one", "three")}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"hosts": []}, "hosts: there are none"),
        ({"end": 100.0}, "times out of order: 100.0 to 100.0"),
        ({"start": NAN}, "times out of order: nan to 140.0"),
        ({"slot": 0.0}, "slot: is 0.0"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(change: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _read([], **change)


def test_an_error_of_rounding_makes_no_slot() -> None:
    for start in (1763730601.2345678 + 0.1 * step for step in range(20)):
        window = _read([], start=start, end=start + 7 * 10.7, slot=10.7)
        assert window.packets.shape == (1, 7)


def _many(seed: int) -> list[dict[str, Any]]:
    """A night of three hosts: uneven times, boots, a silent counter, a reset here and there."""
    dice, rows = random.Random(seed), []
    for host in "abc":
        drops, packets, boot, uptime = 0, 0, 0, 50.0
        for step in range(60):
            if dice.random() < 0.03:
                drops, packets, boot, uptime = 0, 0, boot + 1, 1.0
            if dice.random() < 0.03:
                drops = 0
            drops, packets = drops + dice.randrange(9), packets + dice.randrange(900)
            time = 10 * step + dice.randrange(8) + dice.choice((0.25, 0.5))
            uptime += 10
            gauges = {"health_slowest_ms": float(dice.randrange(1, 9))}
            counters = {"listen_drops": drops, "rx_packets": packets}
            if dice.random() < 0.05:
                del counters["listen_drops"]
            row = _sample(time, host, f"{host}{boot}", uptime=uptime, gauges=gauges, **counters)
            rows.append(row)
    return rows


def _arrays(window: Window) -> list[Any]:
    series = [array for s in window.metrics.values() for array in (s.events, s.exposure)]
    coverage = [window.coverage.watched, *window.coverage.known.values()]
    return [*series, *coverage, window.packets, window.samples, window.newest]


@examples(30)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_order_of_the_samples_does_not_matter(seed: int, order: int) -> None:
    rows = _many(seed)
    mixed = random.Random(order).sample(rows, len(rows))
    names = metrics_named("listen_drops", "health_slowest")
    one, other = (read_window(table_of(r), "abc", 100, 500, 40, names) for r in (rows, mixed))
    for left, right in zip(_arrays(one), _arrays(other)):
        np.testing.assert_array_equal(left, right)
    assert (one.flaws, one.boots) == (other.flaws, other.boots)


@examples(30)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 9), max_size=4))
def test_blocks_of_a_window_are_the_window(seed: int, cuts: list[int]) -> None:
    rows = _many(seed)
    names = metrics_named("listen_drops", "health_slowest")
    table = table_of(rows)
    whole = read_window(table, "abc", 100, 500, 40, names)
    borders = [100, *(100 + 40 * cut for cut in sorted(set(cuts))), 500]
    parts = [read_window(table, "abc", a, b, 40, names) for a, b in zip(borders, borders[1:])]
    for name in names:
        for kind in ("events", "exposure"):
            blocks = [getattr(part.metrics[name], kind) for part in parts]
            expected = getattr(whole.metrics[name], kind)
            np.testing.assert_array_equal(np.concatenate(blocks, axis=1), expected)
    joined = join(parts)
    for one, other in zip(_arrays(joined), _arrays(whole)):
        np.testing.assert_allclose(one, other)
    assert (joined.start, joined.end, joined.boots) == (100, 500, whole.boots)


def test_a_composite_is_the_geometric_mean_of_its_parts_by_their_weights() -> None:
    parts = {"health_p50_ms": 0.5, "health_p95_ms": 0.3, "health_p99_ms": 0.2}
    own = {"checks": Metric("checks", "took {much} time", gauges=parts)}
    readings = [(2.0, 8.0, 32.0), (1.0, 1.0, 1.0), (4.0, 0.0, 9.0), (4.0, None, 9.0)]
    rows = [_sample(10.0 * at, gauges=dict(zip(parts, own))) for at, own in enumerate(readings, 1)]
    window = read_window(table_of(rows), ["a"], 0, 40, 10, own)
    mean = math.exp(0.5 * math.log(2) + 0.3 * math.log(8) + 0.2 * math.log(32))
    np.testing.assert_allclose(_events(window, "checks")[0], [mean, 1, NAN, NAN])
    assert window.coverage.known["checks"] == pytest.approx([15])
    assert window.coverage.unread["health_p95_ms"] == pytest.approx([30 / 4])


def test_more_requests_within_a_limit_than_there_were_are_not_known() -> None:
    counted = [(100, 90), (110, 95), (120, 120), (130, 125)]
    rows = [
        _sample(10.0 * at, upstream_requests=total, upstream_requests_fast=within)
        for at, (total, within) in enumerate(counted)
    ]
    site = {"ttfb_slow": Catalogue([ROOT / "metrics/examples", PACK_METRICS])["ttfb_slow"]}
    window = _read(rows, metrics=site, start=0, end=30, slot=10)
    np.testing.assert_array_equal(_events(window, "ttfb_slow")[0], [5, NAN, 5])
    assert window.coverage.known["ttfb_slow"].tolist() == [20]


def test_every_metric_reads_well() -> None:
    drops, cpu = METRICS["packet_drops"], METRICS["cpu"]
    assert drops.unit_of("rx_packets").text == "per million packets"
    assert (drops.unit_of("seconds").text, cpu.unit_of("cpu_total_ms").text) == ("per s", "per ms")
