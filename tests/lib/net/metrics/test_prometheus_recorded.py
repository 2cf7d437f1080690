# SPDX-License-Identifier: Apache-2.0
"""What Thanos answered, as the source reads it. ``tests/support/prometheus_recording.py``
records it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from edgetune.base.documents.sample import Sample
from edgetune.base.errors import SourceError
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

CASES = json.loads((FOLDER / "thanos.json").read_text())["cases"]
BOTH = CASES["two replicas"]


def pairwise(rows: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    return [*zip(rows, rows[1:])]


def replayed(case: str) -> Any:
    """What the source makes of the answers; AssertionError where it asks otherwise by now."""
    own = CASES[case]
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
