# SPDX-License-Identifier: Apache-2.0
"""Histograms as Prometheus and ClickHouse have them, told as the counters of buckets."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgetune.agent.vocabulary.buckets import BOUNDS as BUCKETS
from edgetune.agent.vocabulary.buckets import bucket_of
from edgetune.base.documents.metric import Histogram
from edgetune.base.errors import InputError
from edgetune.intent.metrics.catalogue import Catalogue
from edgetune.judge.quantiles import quantile
from edgetune.judge.series import read_window
from edgetune.net.metrics.prometheus_client import read_matrix
from edgetune.net.metrics.promql import Wanted
from edgetune.net.metrics.scraped import Scrapes, _native
from edgetune.net.metrics.sources import open_source
from edgetune.site.config import PACK_METRICS
from lab.clickhouse import Table, serving
from tests.lib.net.metrics.test_prometheus_client import NOW, filled, grid, pop
from tests.support import ROOT
from tests.support.builders import write_yaml
from tests.support.clickhouse_recorded import NOON, pop_of
from tests.support.prometheus_api import Reply, api

SITE = Catalogue([ROOT / "metrics" / "examples", PACK_METRICS])
P99 = SITE["upstream_p99"]
BOUNDS = SITE.histograms["upstream_ms"]
SERIES = "envoy_cluster_upstream_rq_time"
OWN = {"instance": "10.0.0.0:9100", "job": "node"}
ZERO = 2.0**-20


def told(opened: Any, asked: Any, start: float, end: float) -> list[Mapping[str, float]]:
    rows = [*opened.window(asked, start, end).rows()]
    return [{n: v for n, v in row.counters.items() if n.startswith("upstream_ms")} for row in rows]


def classic(bounds: Any = BOUNDS) -> Any:
    """Of two clusters, each 10 requests a second: four fifths within 10 ms, the rest within 250."""
    database = filled(many=1)
    for cluster in ("a", "b"):
        for bound in [*bounds, float("inf")]:
            share = 0.0 if bound < 10 else 0.8 if bound < 250 else 1.0
            pairs = [(at, 10 * share * (at - NOW + 1000)) for at in grid()]
            le = "+Inf" if bound == float("inf") else f"{bound:.1f}"
            database.add(f"{SERIES}_bucket", pairs, **OWN, envoy_cluster_name=cluster, le=le)
    return database


def prometheus(answer: Any, catalogue: Any = SITE) -> list[Mapping[str, float]]:
    with api() as server:
        server.answer = answer
        opened = open_source("prometheus", SimpleNamespace(catalogue=catalogue))  # type: ignore[arg-type]
        return told(opened, pop(server.url, many=1), NOW - 300, NOW)


def test_buckets_of_a_classic_histogram_are_told_apart_and_sum_to_its_requests() -> None:
    asked: list[str] = []
    database = classic()

    def answer(form: Mapping[str, str]) -> Reply:
        asked.append(form["query"])
        return database.answer(form)  # type: ignore[no-any-return]

    rows = prometheus(answer)
    assert len(rows) == 21
    for row in rows:
        known = {name: value for name, value in row.items() if value}
        assert known.keys() == {"upstream_ms", "upstream_ms:3", "upstream_ms:7"}
        assert known["upstream_ms"] == pytest.approx(sum(known.values()) / 2)
        assert known["upstream_ms:3"] == pytest.approx(0.8 * known["upstream_ms"])
    # All buckets are one question of a part, beside the share of requests of another metric.
    assert sum(f"{SERIES}_bucket" in query and "le=" not in query for query in asked) <= 2


def test_a_histogram_that_lacks_a_bound_is_not_told() -> None:
    lacking = [bound for bound in BOUNDS if bound != 25]
    for row in prometheus(classic(lacking).answer):
        assert row == {}


def exponential(times: Sequence[float], schema: int) -> dict[str, Any]:
    """A native histogram of these times, as the data model of Prometheus defines it: bucket n of a
    schema reaches from base**(n-1) up to base**n, where the base is 2**(2**-schema)."""
    step = 2.0**-schema
    counts = Counter(math.ceil(math.log2(own) / step) for own in times if own > ZERO)
    buckets = [
        [0, f"{2 ** (step * (number - 1))!r}", f"{2 ** (step * number)!r}", f"{many}"]
        for number, many in sorted(counts.items())
    ]
    zero = [[3, f"-{ZERO}", f"{ZERO}", f"{sum(own <= ZERO for own in times)}"]]
    return {"count": f"{len(times)}", "sum": f"{sum(times)!r}", "buckets": [*zero, *buckets]}


def told_of(native: Mapping[str, Any], scale: float = 1000.0) -> Mapping[str, float]:
    """The counters of one scrape of it."""
    whole = {"resultType": "matrix", "result": [{"metric": OWN, "histograms": [[1.0, native]]}]}
    (series,) = read_matrix(json.dumps({"status": "success", "data": whole}).encode())
    scrapes = Scrapes("e000", times=[1.0])
    wanted = Wanted("t_ms", (SERIES,), scale=scale, native=True)
    own = {SERIES: [replace(series, labels={**series.labels, "__name__": SERIES})]}
    return {name: column[0] for name, column in _native(own, wanted, scrapes).items()}


@pytest.mark.parametrize("schema", [-1, 0, 2, 3, 5, 8])
def test_quantiles_of_a_native_histogram_are_off_by_its_buckets_and_ours(schema: int) -> None:
    """Its buckets are a factor of 2**(2**-schema) wide, and ours one of 1.1."""
    dice = np.random.default_rng(7)
    times = [*(0.02 * dice.lognormal(0, 0.8, 5000)).tolist(), 0.0]
    counted = told_of(exponential(times, schema))
    assert counted["t_ms"] == 5001 == sum(own for name, own in counted.items() if ":" in name)
    assert counted["t_ms:0"] == 1
    row = np.zeros(len(BUCKETS))
    for name, own in counted.items():
        if ":" in name:
            row[int(name.partition(":")[2])] = own
    for share in (50, 95, 99):
        found = float(quantile(row[None], Histogram("t_ms", share))[0])
        off = found / (1000 * float(np.quantile(times, share / 100)))
        wide = 2 ** (2.0**-schema) * 1.1
        assert 1 / wide < off < wide, (share, off)


def test_the_first_bucket_of_own_bounds_is_not_at_zero() -> None:
    """With bounds of its own a native histogram begins at -Inf and ends at +Inf."""
    rows = [[0, "-Inf", "0.05", "70"], [0, "0.05", "0.2", "20"], [0, "0.2", "+Inf", "10"]]
    told = told_of({"count": "100", "sum": "5", "buckets": rows})
    assert told == {
        "t_ms": 100,
        f"t_ms:{bucket_of(25)}": 70,
        f"t_ms:{bucket_of(100)}": 20,
        f"t_ms:{len(BUCKETS) - 1}": 10,
    }
    none = told_of({"count": "0", "sum": "0"})
    assert {name: own for name, own in none.items() if own} == {}


def clickhouse(folder: Path, change: Mapping[str, Any]) -> Any:
    """The table of a site, whose second row is changed."""
    names = [f"upstream_ms_le_{bound:g}".replace(".", "_") for bound in BOUNDS]
    columns = ("host", "time", "boot_id", "up", "rx_packets", "upstream_ms", *names)
    with serving(Table(columns)) as server:
        for number in range(3):
            within = [0.0 if b < 10 else 800.0 if b < 250 else 1000.0 for b in BOUNDS]
            own = {name: value * (1 + number) for name, value in zip(names, within)}
            row = {"host": "e000", "time": NOON + 10 * number, "boot_id": "b1", "up": 900.0}
            row.update(own, rx_packets=5.0, upstream_ms=1000.0 * (1 + number), up=900 + 10 * number)
            server.table.rows.append({**row, **(change if number == 1 else {})})
        opened: Any = open_source("clickhouse", SimpleNamespace(catalogue=SITE))  # type: ignore[arg-type]
        return opened.window(
            pop_of(folder, {"url": server.url, "uptime": "up"}, 3), NOON, NOON + 60
        )


def test_columns_of_buckets_are_told_apart_and_a_row_that_is_not_whole_has_none(
    tmp_path: Path,
) -> None:
    def rows(change: Mapping[str, Any]) -> list[Mapping[str, float]]:
        found = [row.counters for row in clickhouse(tmp_path, change).rows()]
        return [{n: v for n, v in own.items() if v and "upstream" in n} for own in found]

    whole = [
        {"upstream_ms:3": 800.0 * n, "upstream_ms:7": 200.0 * n, "upstream_ms": 1000.0 * n}
        for n in (1, 2, 3)
    ]
    assert rows({}) == whole
    for change in ({"upstream_ms_le_25": None}, {"upstream_ms_le_25": 1e9}, {"upstream_ms": None}):
        assert rows(change) == [whole[0], {}, whole[2]]


def test_a_window_has_the_requests_of_its_rows(tmp_path: Path) -> None:
    table = clickhouse(tmp_path, {})
    window = read_window(table, ["e000"], NOON - 1, NOON + 30, 10, {"upstream_p99": P99})
    counts = window.histograms["upstream_ms"].counts[0].sum(axis=0)
    assert (counts[3], counts[7], counts.sum()) == (1600, 400, 2000)


def test_metrics_of_one_histogram_have_its_bounds(tmp_path: Path) -> None:
    histogram = {"of": "upstream_ms", "quantile": 50, "bounds": [1, 2]}
    own = {"title": "t", "phrase": "took {much} time", "better": "lower", "unit": "ms"}
    document = {"name": "upstream_p50", **own, "mass": True, "histogram": histogram}
    write_yaml(tmp_path / "upstream_p50.yaml", {**document, "readings": {}})
    site = Catalogue([tmp_path, ROOT / "metrics" / "examples", PACK_METRICS])
    with pytest.raises(InputError, match="upstream_p50.yaml: histogram.bounds: .* without these"):
        site.check()
    histogram["bounds"] = list(BOUNDS)
    write_yaml(tmp_path / "upstream_p50.yaml", {**document, "readings": {}})
    Catalogue([tmp_path, ROOT / "metrics" / "examples", PACK_METRICS]).check()
