# SPDX-License-Identifier: Apache-2.0
"""What Thanos and Prometheus answered, as the source reads it.
``tests/support/prometheus_recording.py`` records the one, ``native_recording.py`` the other."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetune.base.documents.sample import Sample
from edgetune.base.documents.table import SampleTable
from edgetune.base.errors import SourceError
from edgetune.intent.metrics.catalogue import METRICS, Catalogue
from edgetune.judge.quantiles import quantile
from edgetune.judge.series import read_window
from tests.support.native_recording import SERIES, catalogue
from tests.support.prometheus_api import Reply, api
from tests.support.prometheus_recorded import (
    CPUS,
    DROPS,
    FOLDER,
    HOSTS,
    PACKETS,
    at_time,
    dated,
    pop_of,
    source,
)

CASES, *NATIVES = (
    json.loads((FOLDER / f"{name}.json").read_text())["cases"]
    for name in ("thanos", "native_2", "native_3")
)
NATIVE = dict(zip(SERIES, NATIVES))
"""By version of Prometheus."""
BOTH = CASES["two replicas"]


def pairwise(rows: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    return [*zip(rows, rows[1:])]


def replayed(case: str) -> Any:
    """What the source makes of the answers; AssertionError where it asks otherwise by now."""
    found = read_again(CASES[case], METRICS)
    return [*found.rows()] if isinstance(found, SampleTable) else found


def read_again(own: Mapping[str, Any], known: Catalogue) -> Any:
    told = iter(own["told"])
    reader = source(known)

    def answer(asked: Mapping[str, str]) -> Reply:
        kept = next(told)
        assert asked == kept["asked"], "record it anew: tests/support/prometheus_recording.py"
        assert server.headers[-1].get("X-Scope-OrgID", "") == kept["tenant"]
        return Reply(kept["body"].encode(), kept["status"], dated(own["now"]))

    with api() as server, at_time(own["now"]):
        server.answer = answer
        asked, start, end = pop_of(server.url, **own["fields"]), own["start"], own["end"]
        if own["do"] == "newest":
            return reader.newest(asked)
        if own["do"] == "thinned":
            return reader.thinned(asked, start, end, 10.0, 5.0)
        return reader.window(asked, start, end)


def of_host(rows: Sequence[Sample], host: str) -> list[Sample]:
    """Each with the readings that the hosts counted, so many in a second of their uptime."""
    own = [row for row in rows if row.host == host]
    assert len({row.boot_id for row in own}) == 1
    assert [row.time for row in own] == sorted({row.time for row in own})
    for before, row in pairwise(own):
        assert row.uptime - before.uptime == pytest.approx(row.time - before.time, abs=1e-3)
        for name, rate in {"rx_packets": PACKETS, "backlog_dropped": CPUS * DROPS}.items():
            assert before.counters[name] <= row.counters[name]
            # A scrape begins some time before it counts, on a machine that has much to do.
            assert row.counters[name] == pytest.approx(rate * row.uptime, abs=1.5 * rate)
    return own


def test_two_replicas_are_one_series_without_a_reset_and_a_picture_of_the_same_scrapes() -> None:
    rows, seconds = replayed("two replicas"), BOTH["end"] - BOTH["start"]
    for host in HOSTS:
        own = of_host(rows, host.name)
        # Each of the two was away for 8 s, and the other one told of that time.
        assert max(later.time - row.time for row, later in pairwise(own)) < 6
        assert len(own) > 0.75 * seconds
    known = {(row.host, row.time): row for row in rows}
    picture = replayed("two replicas in a picture")
    for host in HOSTS:
        own = of_host(picture, host.name)
        assert len(own) == int(seconds / 10) + 1
        for row in own[1:]:
            there = known[host.name, row.time]
            assert row.counters["rx_packets"] == there.counters["rx_packets"]
    now = CASES["the newest scrape"]["now"]
    assert now - 10 < replayed("the newest scrape") <= now


TWO = r'e000: two series tell the same: .*\{replica="a"\} and .*\{replica="b"\}'
GONE = "answers 422: execution: .*code = Unavailable"


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("replicas that Thanos keeps apart", TWO),
        ("a store that has just gone", GONE),
        ("a strict store that has gone", GONE),
        ("an answer in part", "warns that its answer is not whole: .*Unavailable"),
    ],
)
def test_what_is_not_whole_is_refused(case: str, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        replayed(case)


def test_raw_samples_are_read_beside_downsampled_ones_which_are_none() -> None:
    rows = replayed("raw samples beside downsampled ones")
    for host in HOSTS:
        own = of_host(rows, host.name)
        assert len(own) == 21
        for row in own:
            drops = CPUS * DROPS * row.uptime
            assert row.counters == {"rx_packets": PACKETS * row.uptime, "backlog_dropped": drops}
    assert replayed("downsampled samples alone") == []


def test_a_store_that_thanos_has_forgotten_leaves_a_hole_and_no_reset() -> None:
    """Without --endpoint-strict no answer says that the store is missing."""
    for host in HOSTS:
        rows = replayed("a store that went long ago")
        own = [row for row in rows if row.host == host.name]
        gaps = [later.time - row.time for row, later in pairwise(own)]
        assert max(gaps) > 10 and len({row.boot_id for row in own}) == 1
        packets = [row.counters["rx_packets"] for row in own]
        assert packets == sorted(packets)


NAMES = [host.name for host in HOSTS]


def buckets_of(row: Sample, histogram: str) -> float:
    own = [value for name, value in row.counters.items() if name.startswith(f"{histogram}:")]
    return sum(value for value in own if not math.isnan(value))


@pytest.mark.parametrize("version", NATIVE)
@pytest.mark.parametrize("case", NATIVE[3])
def test_each_scrape_of_native_histograms_has_all_its_requests_in_buckets(
    case: str, version: int, tmp_path: Path
) -> None:
    rows = [*read_again(NATIVE[version][case], catalogue(tmp_path, version)).rows()]
    for name in NAMES:
        own = [row for row in rows if row.host == name]
        assert len(own) in ((2, 3) if "picture" in case else (8, 9, 10))
        for histogram in (f"{name}_ms" for name in SERIES[version]):
            counted = [row.counters[histogram] for row in own]
            assert counted == sorted({*counted})
            assert counted == [buckets_of(row, histogram) for row in own]
        # 404 takes no time, and is a label of what is added up.
        assert all(row.counters["answer_ms:0"] == row.counters["answer_ms"] / 11 for row in own)


@pytest.mark.parametrize(("version", "name"), [(2, "answer"), (3, "answer"), (3, "classic")])
def test_quantiles_of_real_native_histograms_are_those_of_what_was_observed(
    version: int, name: str, tmp_path: Path
) -> None:
    """Ten of eleven answers take 20 ms times a lognormal factor, and one takes nothing."""
    known, own = catalogue(tmp_path, version), NATIVE[version]["native histograms"]
    metrics = {name: known[f"{name}_p99"]}
    start, end = own["start"], own["end"]
    window = read_window(read_again(own, known), NAMES, start, end, 3.0, metrics)
    counts = window.histograms[f"{name}_ms"].counts.sum(axis=1)
    assert (counts.sum(axis=1) > 10_000).all()
    for share, deviate in ((50, -0.1257), (95, 1.5982), (99, 2.2913)):
        found = quantile(counts, replace(metrics[name].histogram, quantile=share))  # type: ignore[type-var]
        assert found == pytest.approx(np.full(2, 20 * math.exp(0.6 * deviate)), rel=0.1)


@pytest.mark.parametrize("version", NATIVE)
def test_a_step_in_which_buckets_got_wider_is_not_known(version: int, tmp_path: Path) -> None:
    """What was in narrow ones is in wider ones then, which is no growth of either."""
    known, own = catalogue(tmp_path, version), NATIVE[version]["native histograms"]
    table, metrics = read_again(own, known), {"few_p99": known["few_p99"]}
    window = read_window(table, NAMES, own["start"], own["end"], 3.0, metrics)
    for name, counts in zip(NAMES, window.histograms["few_ms"].counts):
        counted = [row.counters["few_ms"] for row in table.rows() if row.host == name]
        steps = [later - row for row, later in zip(counted, counted[1:])]
        lost = counted[-1] - counted[0] - counts.sum()
        assert 0 < lost <= 2 * max(steps)


def test_a_scrape_without_the_histogram_does_not_tell_it(tmp_path: Path) -> None:
    own = copy.deepcopy(NATIVE[3]["native histograms"])
    kept = next(each for each in own["told"] if "edge_few_seconds" in each["asked"]["query"])
    body = json.loads(kept["body"])
    for series in body["data"]["result"]:
        if series["metric"]["__name__"] == "edge_few_seconds":
            del series["histograms"][-1]
    kept["body"] = json.dumps(body)
    rows = [*read_again(own, catalogue(tmp_path, 3)).rows()]
    for name in NAMES:
        *before, last = [row.counters for row in rows if row.host == name]
        assert all("few_ms" in row for row in before)
        assert "answer_ms" in last and not any(key.startswith("few_ms") for key in last)
