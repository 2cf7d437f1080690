# SPDX-License-Identifier: Apache-2.0
"""Metrics that a site defines, through a whole soak: ratios, buckets, and what is better higher."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgetune.config import PACK_METRICS
from edgetune.metrics.catalogue import Catalogue
from edgetune.metrics.series import read_window
from edgetune.report.text import verdict_text
from tests.support import ROOT
from tests.support.builders import table_of
from tests.support.soaked_fleet import Change, Fleet, Sample, lacks, texts

SITE = Catalogue([ROOT / "metrics" / "examples", PACK_METRICS])
REQUESTS = 1000


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def judged_by(fleet: Fleet, goal: str, metric: str, *guards: str) -> Fleet:
    fleet.intends(goal, metric, *guards)
    named = {name: SITE[name] for name in (metric, *guards, "packets")}
    fleet.plan = replace(fleet.plan, definitions=named)
    return fleet


def serves(total: str, part: str, share: float, hosts: Iterable[str], times: float = 1.0) -> Change:
    """Hosts answer so many requests, a share of them in a way; some ``hosts`` so many times that
    share. Call it for samples of one window, in their order."""
    dice, where = np.random.default_rng(5), {*hosts}
    grown: dict[str, list[int]] = {}

    def change(row: Sample) -> None:
        own = grown.setdefault(row["host"], [0, 0])
        requests = int(dice.poisson(REQUESTS))
        own[0] += requests
        own[1] += int(dice.binomial(requests, share * (times if row["host"] in where else 1)))
        row["counters"].update({total: own[0], part: own[1]})

    return change


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "total", "part", "share", "better", "worse"),
    [
        ("http_5xx", "http_responses", "http_5xx", 0.05, 0.5, 2),
        ("cache_hits", "cache_responses", "cache_hits", 0.4, 1.5, 0.7),
        # What is within the limit grows where fewer are slow.
        ("ttfb_slow", "upstream_requests", "upstream_requests_fast", 0.8, 1.1, 0.9),
    ],
)
def test_a_share_of_requests_is_judged_in_its_direction(
    fleet: Fleet, metric: str, total: str, part: str, share: float, better: float, worse: float
) -> None:
    before = serves(total, part, share, [])
    looks = judged_by(fleet, "improve", metric).soaks(
        [before], [serves(total, part, share, fleet.test, better)]
    )
    assert (looks[-1].verdict, looks[-1].decision) == ("improved", "promote")
    assert SITE[metric].unit in verdict_text(looks[-1], fleet.plan)
    shown = looks[-1].metrics[0]
    level = share if metric != "ttfb_slow" else 1 - share
    assert shown.control_after == pytest.approx(level, rel=0.05)
    changed = level * better if metric != "ttfb_slow" else 1 - share * better
    assert shown.test_after == pytest.approx(changed, rel=0.05)
    looks = judged_by(fleet, "improve", metric).soaks(
        [serves(total, part, share, [])], [serves(total, part, share, fleet.test, worse)]
    )
    assert looks[0].decision == "roll_back"


def test_a_share_without_its_requests_is_not_measured(fleet: Fleet) -> None:
    gone = lacks(["http_responses"], fleet.hosts)
    before, after = (serves("http_responses", "http_5xx", 0.05, []) for _ in range(2))
    looks = judged_by(fleet, "no_harm", "http_5xx").soaks([before], [after, gone])
    assert looks[-1].decision == "hold"
    told = texts(looks[-1], "unmeasured")
    assert told.startswith("http_5xx: stopped being measured in the soak on ")
    assert told.endswith("(http_responses: not read)")


def test_more_requests_within_a_limit_than_there_were_are_not_known() -> None:
    counted = [(100, 90), (110, 95), (120, 120), (130, 125)]
    rows = [
        {
            **{"host": "a", "boot_id": "b", "time": 10.0 * at, "uptime": 10.0 * at, "gauges": {}},
            "counters": {"upstream_requests": total, "upstream_requests_fast": within},
        }
        for at, (total, within) in enumerate(counted)
    ]
    metrics = {"ttfb_slow": SITE["ttfb_slow"]}
    window = read_window(table_of(rows), ["a"], 0, 30, 10, metrics)
    events = window.metrics["ttfb_slow"].events[0]
    np.testing.assert_array_equal(events, [5, np.nan, 5])
    assert window.coverage.known["ttfb_slow"].tolist() == [20]


def test_a_file_that_changed_does_not_change_how_a_rollout_is_judged(fleet: Fleet) -> None:
    """Drops per packet by the plan, and per second by the file of today."""
    fleet.intends("no_harm", "listen_drops")
    own = replace(SITE["listen_drops"], title="as it was", per_if_known=None)
    fleet.plan = replace(fleet.plan, definitions={"listen_drops": own})
    (*_, last) = fleet.soaks()
    assert [row.exposure for row in last.metrics] == ["seconds", "seconds"]
