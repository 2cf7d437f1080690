# SPDX-License-Identifier: Apache-2.0
"""Whole soaks judged by quantiles of histograms: samples go in, and verdicts come out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetune.agent.vocabulary.buckets import BOUNDS, bucket_name
from edgetune.base.documents.metric import Histogram, Metric
from edgetune.base.documents.reading import encoded
from edgetune.intent.metrics.catalogue import METRICS, metrics_of
from edgetune.judge.comparison import Comparison
from edgetune.judge.measured import measure_baseline
from edgetune.judge.ring import judge_ring
from edgetune.judge.series import join, read_window
from edgetune.report.text import verdict_text
from edgetune.report.timeseries import timeseries_of
from tests.support.builders import table_of
from tests.support.soaked_fleet import INTERVAL, SPAN, Change, Fleet, Sample, kinds, lacks, texts

OF = "served_ms"
EACH = 300
"""Requests of a host from one sample to the next."""


def _metric(quantile: float, **more: Any) -> Metric:
    words = f"took {{much}} time for requests (p{quantile:g})"
    own = Histogram(OF, quantile, **more)
    return Metric(f"requests, p{quantile:g}, ms", words, mass=True, unit="ms", histogram=own)


P = {f"requests_p{quantile}": _metric(quantile) for quantile in (50, 95, 99)}
WEIGHTS = (0.5, 0.3, 0.2)
MEAN = Metric(
    "requests, weighted, ms",
    "took {much} time for requests (weighted)",
    mass=True,
    unit="ms",
    parts=[*P],
    mean_of=[
        replace(own.histogram, weight=weight)
        for own, weight in zip(P.values(), WEIGHTS)
        if own.histogram
    ],
)


def serves(
    hosts: Iterable[str] = (), late: float = 0.0, share: float = 0.02, each: int = EACH
) -> Change:
    """Hosts answer requests in some 20 ms, each at a pace of its own; that share of those of
    ``hosts`` takes ``late`` ms longer."""
    dice, where = np.random.default_rng(7), {*hosts}
    counts: dict[str, Any] = {}
    paces: dict[str, float] = {}

    def change(row: Sample) -> None:
        host = row["host"]
        pace = paces.setdefault(host, math.exp(0.3 * math.sin(1.0 + hash_of(host))))
        own = counts.setdefault(host, np.zeros(len(BOUNDS), dtype=int))
        times = 20 * pace * dice.lognormal(0, 0.6, each)
        slow = dice.random(each) < share * (host in where)
        times = times + late * slow
        own += np.bincount(np.searchsorted(BOUNDS, times, "right") - 1, minlength=len(BOUNDS))
        buckets = {bucket_name(OF, n): int(own[n]) for n in np.flatnonzero(own)}
        row["counters"].update({OF: int(own.sum()), **buckets})

    return change


def hash_of(host: str) -> int:
    return sum(map(ord, host))


def fleet_of(folder: Path, *words: str, looks: int = 4, **more: Any) -> Fleet:
    fleet = Fleet(folder, looks=looks).intends(*words, **more)
    known = {**METRICS, **P, "requests_mean": MEAN}
    judged = {name: known[name] for name in (*fleet.plan.metrics, *P)}
    fleet.plan = replace(fleet.plan, definitions=judged)
    return fleet


def test_harm_that_only_the_tail_has_is_found_by_p99_and_not_by_the_median(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, "no_harm", "retransmits", "requests_p50", "requests_p99")
    last = fleet.soaks([serves()], [serves(fleet.test, late=300.0)])[-1]
    rows = {row.metric: row for row in last.metrics}
    assert (last.verdict, last.decision) == ("degraded", "roll_back")
    assert rows["requests_p99"].ratio > 1.5 > 1.1 > rows["requests_p50"].ratio > 0.9
    assert rows["requests_p99"].exposure == "requests"
    assert 20 < rows["requests_p50"].control_after < 22
    assert 0 < rows["requests_p50"].requests_error < rows["requests_p99"].requests_error < 0.05
    assert rows["retransmits"].requests_error is None
    assert "requests_error" not in encoded(rows["retransmits"])
    shown = verdict_text(last, fleet.plan)
    assert "ms" in next(line for line in shown.splitlines() if "requests_p99" in line)


def test_faster_requests_are_an_improvement_that_is_promoted(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, "improve", "requests_p99")
    looks = fleet.soaks([serves(fleet.hosts, late=300.0)], [serves(fleet.control, late=300.0)])
    last = looks[-1]
    assert (last.verdict, last.decision, kinds(last)) == ("improved", "promote", [])
    assert last.reason.startswith("Test hosts took 7")
    assert last.reason.count("less time for requests (p99) than control") == 1
    assert judge_ring({"pop5": fleet.record}).decision == "promote"
    pair = {"pop5": fleet.record, "pop6": fleet.record}
    assert judge_ring(pair).metrics[0].ratio == pytest.approx(last.metrics[0].ratio, rel=1e-3)
    drawn = timeseries_of(fleet.plan, fleet.baseline, looks, None)[0]
    assert drawn.unit == "ms" and drawn.is_whole and drawn.relative


def test_a_mean_of_quantiles_is_judged_as_one_and_shows_its_parts(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, "no_harm", "requests_mean", margin=0.5)
    last = fleet.soaks([serves()], [serves(fleet.test, late=300.0)])[-1]
    rows = {row.metric: row for row in last.metrics}
    assert [rows[name].role for name in ("requests_mean", *P)] == ["intent", *["part"] * 3]
    assert last.decision == "promote" and rows["requests_p99"].ratio > 1.5
    meant = math.prod(rows[name].ratio ** weight for name, weight in zip(P, WEIGHTS))
    assert rows["requests_mean"].ratio == pytest.approx(meant, rel=0.02)
    levels = [rows[name].control_before for name in P]
    meant = math.prod(level**weight for level, weight in zip(levels, WEIGHTS))
    assert rows["requests_mean"].control_before == pytest.approx(meant, rel=0.05)
    errors = [rows[name].requests_error * weight for name, weight in zip(P, WEIGHTS)]
    assert max(errors) < rows["requests_mean"].requests_error <= sum(errors) * 1.1
    assert "of requests" not in verdict_text(last, fleet.plan)
    pair = {"pop5": fleet.record, "pop6": fleet.record}
    assert judge_ring(pair).metrics[0].ratio == pytest.approx(rows["requests_mean"].ratio, rel=0.02)


def test_a_mean_is_not_measured_where_one_of_its_quantiles_is_not(tmp_path: Path) -> None:
    """With 1,800 requests there is a p95, and no p99."""
    fleet = fleet_of(tmp_path, "no_harm", "requests_mean")
    last = fleet.soaks([serves()], [serves(each=30)])[-1]
    assert (last.metrics[0].ratio, last.decision) == (None, "hold")
    assert texts(last, "few_requests").endswith("it needs 2,000 requests of each host")
    assert next(own for own in last.metrics if own.metric == "requests_p95").ratio
    gone = fleet.soaks([serves()], [serves(), lacks([OF], fleet.hosts)])[-1]
    assert texts(gone, "unmeasured").startswith("requests_mean: stopped being measured")


def test_nothing_is_promoted_as_no_harm_beyond_its_margin(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, "no_harm", "requests_p99", margin=0.2)
    last = fleet.soaks([serves()], [serves()])[-1]
    assert (last.verdict, last.decision) == ("no_difference", "promote")


def test_too_few_requests_are_not_measured_and_never_a_number(tmp_path: Path) -> None:
    """Of 60 steps of 30 requests a host has 1,800, which is no p99."""
    fleet = fleet_of(tmp_path, "no_harm", "requests_p99", "requests_p95")
    last = fleet.soaks([serves()], [serves(each=30)])[-1]
    row = last.metrics[0]
    assert (row.ratio, row.test_after, row.requests_error, row.p_worse) == (None, None, None, None)
    assert last.decision == "hold"
    wanted = f"requests_p99: too few requests in the soak on {fleet.test[0]}, "
    assert texts(last, "few_requests").startswith(wanted)
    assert texts(last, "few_requests").endswith("it needs 2,000 requests of each host")
    # The same requests are enough for a p95.
    assert next(own for own in last.metrics if own.metric == "requests_p95").ratio


def test_a_host_with_too_few_requests_speaks_for_neither_side(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, "no_harm", "requests_p99")
    few, many = serves(each=30), serves()

    def change(row: Sample) -> None:
        (few if row["host"] == fleet.test[0] else many)(row)

    last = fleet.soaks([serves()], [change])[-1]
    assert last.hosts["requests_p99"][fleet.test[0]][1:] == [None, None]
    assert kinds(last) == ["few_requests"] and last.decision == "hold"
    optional = fleet_of(tmp_path, "no_harm", "retransmits", "requests_p99", optional=True)
    last = optional.soaks([serves()], [change])[-1]
    assert (kinds(last), last.decision) == (["few_requests"], "hold")
    last = optional.soaks([change], [serves()])[-1]
    assert {own.metric: own.hosts for own in last.unwatched} == {"requests_p99": [fleet.test[0]]}
    assert last.decision == "promote"


def test_what_is_shown_beside_decides_nothing(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, "no_harm", "retransmits")
    names = ["requests_p50", "requests_p99"]
    fleet.plan = replace(fleet.plan, beside=names)
    last = fleet.soaks([serves()], [serves(fleet.test, late=300.0)])[-1]
    rows = {row.metric: row for row in last.metrics}
    assert {rows[name].role for name in names} == {"beside"}
    assert rows["requests_p99"].ratio > 1.5 and last.decision == "promote"
    assert "requests_p99 (beside) test" in verdict_text(last, fleet.plan)
    whole = fleet.record
    ring = judge_ring({"pop5": whole, "pop6": whole})
    assert {row.metric for row in ring.metrics} >= {*names}
    # Where nobody measures it, it is no doubt, and not shown; also where one PoP of a ring does.
    last = fleet.soaks()[-1]
    assert (last.decision, kinds(last)) == ("promote", [])
    assert not {*names} & {row.metric for row in last.metrics}
    drawn = timeseries_of(fleet.plan, fleet.baseline, [last], None)
    assert [own.metric for own in drawn] == ["retransmits", "packets"]
    other = fleet_of(tmp_path, "no_harm", "retransmits")
    other.soaks()
    for records in ([whole, other.record], [other.record, whole]):
        ring = judge_ring(dict(zip(("pop5", "pop6"), records)))
        assert ring.decision == "promote"
        assert not {*names} & {row.metric for row in ring.metrics}


def test_hosts_without_any_request_promote_nothing(tmp_path: Path) -> None:
    """A log that is not written any more counts none: that is no proof that none came late."""

    def none(row: Sample) -> None:
        kept = {own: n for own, n in row["counters"].items() if own.partition(":")[0] != OF}
        row["counters"] = {**kept, OF: 0}

    fleet = fleet_of(tmp_path, "no_harm", "retransmits", "requests_p99")

    def none_on_test_hosts(row: Sample) -> None:
        if row["host"] in fleet.test:
            none(row)

    for before, after in (
        ([none], [none]),
        ([serves()], [none]),
        ([serves()], [serves(), none_on_test_hosts]),
    ):
        last = fleet.soaks(before, after)[-1]
        assert (last.decision, kinds(last)[:1]) == ("hold", ["few_requests"]), last.reason


def test_a_histogram_that_nobody_tells_is_not_measured(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, "no_harm", "requests_p99")
    last = fleet.soaks()[-1]
    assert last.decision == "hold" and last.reason.startswith("requests_p99 was measured on no h")
    assert texts(last, "unmeasured").endswith(f"({OF}: not read)")
    half = fleet.soaks([serves()], [serves(), lacks([OF], fleet.test)])[-1]
    assert half.decision == "hold" and "one_sided" in kinds(half)


def _window(fleet: Fleet, *changes: Change, end: float = SPAN) -> Any:
    rows = fleet._samples(0, 1, [serves(), *changes])
    return read_window(table_of(rows), fleet.hosts, 0, end, INTERVAL, metrics_of(fleet.plan))


def test_what_is_not_whole_is_not_counted(tmp_path: Path) -> None:
    """A bucket that was read at another moment, or reset, is no request of anybody."""
    fleet = fleet_of(tmp_path, "no_harm", "requests_p99")
    at, host = 300.0, fleet.test[0]
    whole = _window(fleet).histograms[OF].counts.sum(axis=1)
    assert whole.sum(axis=1).tolist() == [EACH * SPAN / INTERVAL] * len(fleet.hosts)

    def one_bucket(row: Sample) -> None:
        if (row["host"], row["time"]) == (host, at):
            name = max(row["counters"], key=lambda own: (OF + ":" in own, row["counters"][own]))
            del row["counters"][name]

    def reset(row: Sample) -> None:
        if row["host"] == host and row["time"] >= at:
            row["counters"] = {
                name: max(0, value - 9000 * (name == OF)) * (not name.startswith(OF + ":"))
                for name, value in row["counters"].items()
            }

    lost = _window(fleet, one_bucket).histograms[OF].counts.sum(axis=1)
    assert lost[0].sum() == EACH * (SPAN / INTERVAL - 2)
    assert (lost[1:] == whole[1:]).all()
    window = _window(fleet, reset)
    assert window.histograms[OF].counts[0].sum() <= EACH * at / INTERVAL
    assert f"{OF} fell from " in window.flaws[host]
    known = window.coverage.known["requests_p99"]
    assert known[0] < SPAN - INTERVAL < known[1] + 1


def test_both_halves_of_a_baseline_and_its_parts_add_up(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, "no_harm", "requests_p99")
    rows = table_of(fleet._samples(0, 1, [serves()]))
    spans = [(0, 200), (200, 400), (400, 600)]
    judged = metrics_of(fleet.plan)
    parts = [read_window(rows, fleet.hosts, a, b, INTERVAL, judged) for a, b in spans]
    baseline = measure_baseline(join(parts), fleet.plan.strata)
    whole = measure_baseline(_window(fleet), fleet.plan.strata)
    compared = [Comparison(fleet.plan, fleet.plan.strata, own, []) for own in (baseline, whole)]
    first, second = (own.before("requests_p99") for own in compared)
    assert np.allclose(first, second)
    assert 0 < compared[0].theta["requests_p99"] <= 1
    kept = baseline.histograms[OF]
    assert [*map(len, (kept, baseline.metrics["requests_p99"].rows))] == [2, 0]
    assert len(kept[0].counts) < 400 * len(fleet.hosts)


def test_a_load_that_moves_a_quantile_is_learnt_from_slots_that_have_enough(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, "no_harm", "retransmits", "requests_p50", "requests_p99")
    window = _window(fleet)
    assert np.isfinite(window.metrics["requests_p50"].events).all()
    assert np.isnan(window.metrics["requests_p99"].events).all()
    baseline = measure_baseline(window, fleet.plan.strata)
    (measured,) = baseline.metrics["requests_p50"].elasticities.values()
    (believed,) = baseline.metrics["requests_p99"].elasticities.values()
    assert (believed.value, believed.error) == (1.0, 2.0) != (measured.value, measured.error)
