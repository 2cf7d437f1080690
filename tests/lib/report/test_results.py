# SPDX-License-Identifier: Apache-2.0
"""The three lines of a look: drops, health and capacity; and what is said of what is not known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.documents.campaign import PopEffect, RingEffect, RingHeadroom, RingLoad
from edgetune.base.documents.look import Headroom, Judged, Look, Moment, Passed
from edgetune.base.documents.metric import Histogram, Metric
from edgetune.base.documents.plan import Guard, Plan
from edgetune.base.documents.words import Decision, Verdict
from edgetune.report.campaign import headroom_over, loads_over
from edgetune.report.headline import effect_of
from edgetune.report.page import page
from edgetune.report.results import headroom_text, passed_text, results_of
from edgetune.report.text import verdict_text
from tests.lib.report.test_report import effect, material, said
from tests.support.builders import plan

P99 = Metric(
    "requests, p99, ms",
    "took {much} time",
    histogram=Histogram("request_ms", 99),
    unit="ms",
    limit=250,
)
AT = Passed(1.42, [1.38, 1.46], 1.5, "")
NEVER = Passed(None, None, 1.9, "never")
SHORT = Passed(None, None, 1.3, "short")
NAMES = ("test_before", "control_before", "test_after", "control_after")


def headroom(ratio: Any, interval: Any, test: Passed = AT, control: Passed = AT) -> Headroom:
    groups = dict(zip(NAMES, (AT, AT, test, control)))
    return Headroom("request_p99", 250, groups, ratio, interval, ratio is not None)


MORE = headroom(1.23, [1.12, 1.35])


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            MORE,
            "test hosts carry 23 % more load than control relative to their own baseline"
            " (+12 % to +35 %) before request_p99 passes 250 ms",
        ),
        (
            replace(MORE, since_baseline=False),
            "test hosts carry 23 % more load than control"
            " (+12 % to +35 %) before request_p99 passes 250 ms",
        ),
        (
            headroom(0.9, [0.85, 0.95]),
            "test hosts carry 10 % less load than control relative to their own baseline"
            " (−15 % to −5 %) before request_p99 passes 250 ms",
        ),
        (
            headroom(None, [1.34, None], NEVER),
            "test hosts carry at least 34 % more load than control"
            " before request_p99 passes 250 ms",
        ),
        (
            headroom(None, [None, 0.8], control=NEVER),
            "test hosts carry at least 20 % less load than control"
            " before request_p99 passes 250 ms",
        ),
        (
            headroom(None, [None, None], NEVER, replace(NEVER, seen=1.7)),
            "this PoP was never near the limit of request_p99 (250 ms),"
            " up to 1.7 times the usual load",
        ),
        (
            headroom(None, [None, None], *[Passed(None, None, None, "unmeasured")] * 2),
            "not known before request_p99 passes 250 ms: both groups not measured on enough hosts"
            " for long enough",
        ),
        (
            # A bound that excludes nothing is none.
            headroom(None, [0.9, None], SHORT),
            "not known before request_p99 passes 250 ms: test hosts near it for too short to tell,"
            " up to 1.3 times the usual load, control hosts at 1.42 times the usual load"
            " (1.38 to 1.46)",
        ),
    ],
)
def test_how_much_more_is_carried_or_why_that_is_not_known(row: Headroom, says: str) -> None:
    assert headroom_text(row, P99) == says


def test_over_a_ring_it_is_told_with_what_no_pop_could_tell() -> None:
    three = dict.fromkeys("abc", PopEffect(1.0, 0.1, 1.0))
    over = RingEffect("request_p99", 1.23, [1.12, 1.35], [1.02, 1.48], 0.0, 0.0, three)
    load = RingLoad(1.42, [1.38, 1.46], 4)
    loads = {"test_before": load, "control_before": load, "test_after": replace(load, load=1.7)}
    row = RingHeadroom("request_p99", 250, P99, over, loads, ["d"], ["e", "f"], ["g"])
    assert headroom_over(row) == (
        "test hosts carry 23 % more load than control (+12 % to +35 %) before request_p99 passes"
        " 250 ms over 3 PoPs; the next PoP: +2 % to +48 %; 1 PoP never near it; 2 PoPs with one"
        " group alone that passed it; 1 PoP of which it is not known"
    )
    assert loads_over(row) == (
        "load at which request_p99 passes 250 ms, in multiples of the usual: before, test hosts at"
        " 1.42 (1.38 to 1.46, 4 PoPs) and control hosts at 1.42 (1.38 to 1.46, 4 PoPs); after, test"
        " hosts at 1.7 (1.38 to 1.46, 4 PoPs)"
    )
    alone = replace(row, over=None, loads={}, bounded=[], unknown=[], never=["a", "b"])
    assert headroom_over(alone) == (
        "before request_p99 passes 250 ms: fewer than two PoPs tell how much more load test hosts"
        " carry; 2 PoPs never near it"
    )
    assert loads_over(alone) == ""


def test_of_a_metric_that_is_better_higher_hosts_fall_below_the_limit() -> None:
    hits = replace(P99, better="higher", unit="%")
    assert headroom_text(MORE, hits).endswith("before request_p99 falls below 250 %")


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (AT, "at 1.42 times the usual load (1.38 to 1.46)"),
        (NEVER, "never near it, up to 1.9 times the usual load"),
        (replace(NEVER, seen=None), "never near it"),
        (Passed(None, None, 0.7, "always"), "beyond it at every load"),
        (Passed(None, None, 0.7, "unmeasured"), "not measured on enough hosts for long enough"),
    ],
)
def test_where_a_group_passed_or_why_not(own: Passed, says: str) -> None:
    assert passed_text(own) == says


@pytest.fixture
def planned(tmp_path: Path) -> Plan:
    guards = [Guard("request_p99", 0.1), Guard("packets", 0.05)]
    return replace(plan(tmp_path), guards=guards, definitions={"request_p99": P99})


def look(*headrooms: Headroom, metrics: Any = ("listen_drops", "request_p99")) -> Look:
    rows = [effect(0.02 if "drops" in name else 0.5, name) for name in metrics]
    moment = Moment(2, 2, 1.0)
    own = Look(Verdict.IMPROVED, Decision.PROMOTE, "so", moment, metrics=rows)
    return replace(own, headroom=[*headrooms])


def test_the_three_results_are_three_lines(planned: Plan) -> None:
    drops, health, capacity = results_of(Judged(look(MORE), planned))
    assert (drops.name, health.name, capacity.name) == ("drops", "health", "capacity")
    assert drops.text.startswith("listen_drops −98 % (")
    assert health.text.startswith("request_p99 −50 % (")
    assert capacity.text.startswith("test hosts carry 23 % more load")


def test_a_line_without_a_metric_says_so(planned: Plan) -> None:
    drops, health, capacity = results_of(Judged(look(metrics=("packets",)), planned))
    assert drops.text == "not measured: no metric of this rollout is one of drops"
    assert health.text == "not measured: no metric of this rollout is one of health"
    assert capacity.text == "not measured: no metric of this rollout has a limit"


def test_before_a_look_decides_capacity_is_not_told(planned: Plan) -> None:
    waits = replace(look(), decision=Decision.WAIT)
    assert results_of(Judged(waits, planned))[2].text == "told by the look that decides"
    # Looks of earlier versions have none.
    old = results_of(Judged(look(), planned))[2].text
    assert old == "not known: an earlier version took this look"


def test_chat_shows_capacity_beside_the_metrics(planned: Plan) -> None:
    (line,) = (own for own in verdict_text(look(MORE), planned).split("\n") if "capacity" in own)
    assert line.startswith("  capacity       test hosts carry 23 % more load than control")
    assert "capacity" not in verdict_text(look(), planned)


def test_a_page_has_the_lines_at_its_head_and_each_group_below(tmp_path: Path) -> None:
    kept = material(tmp_path)
    *earlier, last = kept.looks
    row = replace(MORE, metric="health_failed", limit=0.5)
    html = page(replace(kept, looks=[*earlier, replace(last, headroom=[row])]))
    text = said(html)
    assert "Drops listen_drops −71 %" in text and "Health health_failed" in text
    assert "Capacity Test hosts carry 23 % more load than control" in text
    assert "health_failed passes 0.5 at 1.42 times the usual load (1.38 to 1.46)" in text
    # Of a look of an earlier version there is no table, and no line that tells of one.
    old = said(page(replace(kept, looks=[*earlier, replace(last, headroom=[])])))
    assert "more than half of its slots" not in old and "Capacity Not known: an" in old


def test_the_index_tells_it_in_few_words(tmp_path: Path) -> None:
    kept = material(tmp_path)
    assert kept.head.verdict
    head = replace(kept.head, verdict=replace(kept.head.verdict, headroom={"request_p99": 1.23}))
    assert effect_of(head).endswith("; load to the limit of request_p99: +23 %")
    assert "load to the limit" not in effect_of(kept.head)


def test_a_record_keeps_what_is_known_of_every_metric() -> None:
    own = look(MORE, headroom(None, [1.2, None])).conclusion
    assert own.ratios == {"listen_drops": 0.02, "request_p99": 0.5}
    assert own.headroom == {"request_p99": 1.23}
