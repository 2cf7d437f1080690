# SPDX-License-Identifier: Apache-2.0
"""What Thanos answered, as the source reads it. ``tests/support/prometheus_recording.py``
records it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from edgetune.documents.sample import Sample
from edgetune.errors import SourceError
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


def pairwise(rows: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    return [*zip(rows, rows[1:])]


TOLD = {file.stem: json.loads(file.read_text()) for file in FOLDER.glob("*.json")}


def replayed(program: str, case: str) -> Any:
    """What the source makes of the answers; AssertionError where it asks otherwise by now."""
    own = TOLD[program]["cases"][case]
    told = iter(own["told"])

    def answer(asked: Mapping[str, str]) -> Reply:
        known = next(told)
        assert asked == known["asked"], "record it anew: tests/support/prometheus_recording.py"
        assert server.headers[-1].get("X-Scope-OrgID", "") == known["tenant"]
        return Reply(known["body"].encode(), known["status"], dated(own["now"]))

    with api() as server, at_time(own["now"]):
        server.answer = answer
        asked, start, end = pop_of(server.url, **own["fields"]), own["start"], own["end"]
        if own["do"] == "newest":
            return source().newest(asked)
        if own["do"] == "thinned":
            return [*source().thinned(asked, start, end, 10.0, 5.0).rows()]
        return [*source().window(asked, start, end).rows()]


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


@pytest.mark.parametrize("program", TOLD)
def test_two_replicas_are_one_series_without_a_reset(program: str) -> None:
    rows, case = replayed(program, "two replicas"), TOLD[program]["cases"]["two replicas"]
    for host in HOSTS:
        own = of_host(rows, host.name)
        gaps = [later.time - row.time for row, later in pairwise(own)]
        # Each of the two was away for 8 s, and the other one told of that time.
        assert max(gaps) < 6 and len(own) > 0.75 * (case["end"] - case["start"])


@pytest.mark.parametrize("program", TOLD)
def test_a_picture_of_two_replicas_is_of_the_same_scrapes(program: str) -> None:
    case = TOLD[program]["cases"]["two replicas"]
    all_rows = {(row.host, row.time): row for row in replayed(program, "two replicas")}
    rows = replayed(program, "two replicas in a picture")
    for host in HOSTS:
        own = of_host(rows, host.name)
        assert len(own) == int((case["end"] - case["start"]) / 10) + 1
        for row in own[1:]:
            there = all_rows[host.name, row.time]
            assert row.counters["rx_packets"] == there.counters["rx_packets"]


@pytest.mark.parametrize("program", TOLD)
def test_the_newest_scrape_is_told(program: str) -> None:
    now = TOLD[program]["cases"]["the newest scrape"]["now"]
    assert now - 10 < replayed(program, "the newest scrape") <= now


def test_replicas_that_thanos_keeps_apart_are_refused_with_both_named() -> None:
    both = r'e000: two series tell the same: .*\{replica="a"\} and .*\{replica="b"\}'
    with pytest.raises(SourceError, match=both):
        replayed("thanos", "replicas that Thanos keeps apart")


@pytest.mark.parametrize("case", ["a store that has just gone", "a strict store that has gone"])
def test_thanos_answers_nothing_without_a_store(case: str) -> None:
    with pytest.raises(SourceError, match="answers 422: execution: .*code = Unavailable"):
        replayed("thanos", case)


def test_an_answer_of_thanos_with_warnings_is_refused() -> None:
    with pytest.raises(SourceError, match="warns that its answer is not whole: .*Unavailable"):
        replayed("thanos", "an answer in part")


def test_a_store_that_thanos_has_forgotten_leaves_a_hole_and_no_reset() -> None:
    """Without --endpoint-strict no answer says that the store is missing."""
    for host in HOSTS:
        rows = replayed("thanos", "a store that went long ago")
        own = [row for row in rows if row.host == host.name]
        gaps = [later.time - row.time for row, later in pairwise(own)]
        assert max(gaps) > 10 and len({row.boot_id for row in own}) == 1
        packets = [row.counters["rx_packets"] for row in own]
        assert packets == sorted(packets)


def test_raw_samples_are_read_beside_downsampled_ones() -> None:
    rows = replayed("thanos", "raw samples beside downsampled ones")
    for host in HOSTS:
        own = of_host(rows, host.name)
        assert len(own) == 21
        for row in own:
            assert row.counters == {
                "rx_packets": PACKETS * row.uptime,
                "backlog_dropped": CPUS * DROPS * row.uptime,
            }


def test_downsampled_samples_alone_are_none() -> None:
    assert replayed("thanos", "downsampled samples alone") == []
