# SPDX-License-Identifier: Apache-2.0
"""Windows with holes: what nobody measured is told as that, by every text there is of a look."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgetune.base.documents.campaign import PopStep, Record, RingStep
from edgetune.base.documents.head import Entry, Head
from edgetune.base.documents.look import Look
from edgetune.intent.metrics.catalogue import METRICS, metrics_of
from edgetune.judge.power import prospect
from edgetune.judge.ring import judge_ring
from edgetune.judge.series import read_window
from edgetune.judge.verdict import prospect_text
from edgetune.report.campaign_page import CampaignMaterial, campaign_page
from edgetune.report.files import index_page
from edgetune.report.headline import effect_of
from edgetune.report.page import Material, card, page
from edgetune.report.text import verdict_text
from tests.support.builders import table_of
from tests.support.examples import examples
from tests.support.soaked_fleet import SPAN, Fleet, Sample, times
from tests.support.stored import stored

LOOKS = 2
SPANS = {"before": (0, SPAN), "first": (1000, 1300), "second": (1300, 1600), "after": (1000, 1600)}
PARTS = ("before", "first", "second")
GROUPS = ("test", "control")
WHEN = {"before": "baseline", "after": "soak"}
LEVELS = tuple((group, when) for when in ("before", "after") for group in GROUPS)
INTENT, GUARD = "listen_drops", "retransmits"
COUNTED = {
    INTENT: ("listen_drops", "rx_packets"),
    GUARD: ("tcp_retransmits", "tcp_segments_out"),
    "packets": ("rx_packets",),
}
LITTLE = 0.75
"""Share below which a number has to say in how much of its time it was measured."""
CONTRAST = re.compile(
    r"\d % (fewer|less|more)|[−±+][\d,.]+ %|\d×|\d times as m|\bp (= )?[\d.]+|clear difference"
    r"|\bbetter\b|\bworse\b(?! not proven; alpha)|[Nn]othing happened|There were no"
    r"|only [\de+]+ events"
)
"""What only a comparison of both groups, before and after, can tell."""
MOVED = re.compile(r"rose from 0 to \S+|stayed at \S+|(fell|rose) from \S+ to \S+ [^()]*\([^()]*\)")
"""How one group went."""

NOTHING = re.compile(r"would be seen|no \w+ in the baseline|too little happened")
"""What of a baseline alone can be told."""

Holes = Mapping[tuple[str, str], str]
"""What is missing of a group in a window."""


def _hole(fleet: Fleet, holes: Holes, row: Sample) -> str:
    group = "test" if row["host"] in fleet.test else "control"
    # A sample between two windows is of both, and may end a step of either.
    ends = (name for name in PARTS if row["time"] < SPANS[name][1])
    return holes.get((next(ends, "second") if row["time"] != SPAN else "before", group), "full")


def _lose(fleet: Fleet, holes: Holes, row: Sample) -> None:
    what, start = _hole(fleet, holes, row), row["time"] // 300 * 300
    few = row["host"] not in (fleet.test[0], fleet.control[0])
    if what == "empty" or (what == "few" and few) or (what == "short" and row["time"] - start > 60):
        row["time"] = math.nan
    if what == "unread":
        del row["counters"]["listen_drops"]


@dataclass(frozen=True)
class Soaked:
    """A fleet after its soak, and what of its samples is left, by host."""

    fleet: Fleet
    looks: Sequence[Look]
    left: Mapping[str, Sequence[Sample]]

    def share(self, metric: str, group: str, when: str) -> float:
        """In how much of its time a group, or a host, has a metric: from the samples alone."""
        start, end = SPANS[when]
        hosts = getattr(self.fleet, group, [group])
        steps = (step for host in hosts for step in zip(self.left[host], self.left[host][1:]))
        seconds = [
            two["time"] - one["time"]
            for one, two in steps
            if start < (one["time"] + two["time"]) / 2 <= end
            and one["boot_id"] == two["boot_id"]
            and all(name in own["counters"] for own in (one, two) for name in COUNTED[metric])
        ]
        return sum(seconds) / len(hosts) / (end - start)


def soaked(folder: Path, holes: Holes, drops: float) -> Soaked:
    fleet = Fleet(folder, hosts=8, looks=LOOKS).intends("improve", INTENT, GUARD)
    left: dict[str, list[Sample]] = {host: [] for host in fleet.hosts}

    def change(row: Sample) -> None:
        row["boot_id"] = "before" if row["time"] < 1000 else "after"
        _lose(fleet, holes, row)
        if math.isfinite(row["time"]):
            left[row["host"]].append({**row, "counters": {**row["counters"]}})

    fewer = times("listen_drops", drops, fleet.test)
    none = times("listen_drops", 0.0, fleet.hosts) if drops == 0 else lambda row: None
    looks = fleet.soaks([none, change], [fewer, none, change])
    told = [
        replace(own, block=block, number=number, until=block.end, at=block.end)
        for number, (own, block) in enumerate(zip(looks, fleet.blocks))
    ]
    power = prospect(fleet.plan, fleet.plan.strata, fleet.baseline)
    fleet.baseline = replace(fleet.baseline, power=stored(power))
    return Soaked(fleet, told, left)


def head_of(own: Soaked) -> Head:
    states = {"claimed": 0, "baseline": 0, "changing": 600, "soaking": 1000, "held": 1600}
    history = [Entry(float(at), state, "ana", "so") for state, at in states.items()]
    plan = own.fleet.plan
    return stored(
        Head(
            id="lab1-1", pop="lab1", tuning=plan.tuning.name, plan=plan.digest, state="held",
            epoch=3, owner="", by="ana", created=0.0, history=history, looks=LOOKS,
            verdict=own.looks[-1].conclusion,
        )
    )  # fmt: skip


def material(own: Soaked) -> Material:
    fleet = own.fleet
    rows = [row for each in own.left.values() for row in each]
    metrics, exposures = metrics_of(fleet.plan), fleet.baseline.exposures
    window = read_window(table_of(rows), fleet.hosts, 0, 1600, 50, metrics, exposures)
    rest: tuple[Any, ...] = ([], "", "", [], [], 1600.0)
    return Material(head_of(own), fleet.plan, fleet.baseline, own.looks, [], window, *rest)


def campaign(own: Soaked, pooled: Look) -> str:
    """The page of a campaign of two PoPs with one record, whose ring was judged as one."""
    verdict = {"verdict": pooled.verdict.value, "reason": pooled.reason}
    pops = {name: PopStep(rollout="lab1-1") for name in ("ams1", "fra1")}
    ring = RingStep("all", "d", pops, begun=1.0, verdict=verdict)
    record = Record("c-1", "c", "accept_queue", "d", "t", "ana", 0.0, rings=[ring])
    effects = dict.fromkeys(pops, own.looks[-1].metrics[0])
    return campaign_page(
        CampaignMaterial(
            record,
            {"lab1-1": head_of(own)},
            effects,
            {"all": stored(pooled).metrics[0]},
            metrics_of(own.fleet.plan),
            [],
            [],
            [],
            1600.0,
        )
    )


def said(html: str) -> str:
    """The text of a part of a page, with that of its pictures, without what explains them."""
    told = re.sub(r"<(style|caption).*?</\1>", "", html, flags=re.DOTALL)
    named = " ".join(re.findall(r'aria-label="([^"]*)"', told))
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", told) + named))


def rows_of(html: str, title: str) -> Iterator[str]:
    """Those of the table below a heading."""
    _, _, part = html.partition(f"<h2>{title}")
    yield from re.findall(r"<tr.*?</tr>", part.partition("</table>")[0], re.DOTALL)


def shown_elsewhere(own: Soaked, html: str) -> Iterator[tuple[str, str, float]]:
    """What else is told of the intent's metric: its place, the text, and in how much of its time
    that was measured of which it tells something."""
    shares = {cell: own.share(INTENT, *cell) for cell in LEVELS}
    newest = {group: own.share(INTENT, group, "second") for group in GROUPS}
    look = own.looks[-1]
    worse, intent = verdict_text(look, own.fleet.plan).split("\n")[1:3]
    every = [min(own.share(name, *cell) for cell in LEVELS) for name in COUNTED]
    yield "harm", worse, max(every)
    yield "benefit", intent, min(shares.values())
    yield "reason", look.reason, max(every)
    before = {group: shares[group, "before"] for group in GROUPS}
    power = own.fleet.baseline.power
    yield "prospect", prospect_text(power) if power else "", min(before.values())
    title = re.escape(METRICS[INTENT].title)
    for told in re.findall(rf'aria-label="{title} over time[^"]*: (test[^"]*)"', html):
        if min([*before.values(), *newest.values()]) < LITTLE:
            assert "measured in" in told, told
        for group, part in zip(GROUPS, told.split("; control")):
            yield "picture", part, min(before[group], newest[group])
    quiet = "".join(re.findall(r"Nothing happened, on any host, of: [^<]*", html))
    if METRICS[INTENT].title in quiet:
        yield "quiet", quiet, min([*shares.values(), *newest.values()])
    for row in rows_of(html, "Hosts"):
        for host, changed in re.findall(
            rf'<th scope="row">(\w+)</th>.*?{INTENT}">(.*?)</td>', row, re.DOTALL
        ):
            cells = [own.share(INTENT, host, when) for when in WHEN]
            yield "host", said(changed), min(cells)


def texts_of(own: Soaked, metric: str) -> Iterator[tuple[str, str]]:
    """All that is told of how the groups compare by a metric, at the newest look; by its place."""
    look, made = own.looks[-1], material(own)
    line = next(
        line for line in verdict_text(look, own.fleet.plan).split("\n") if f"  {metric} " in line
    )
    yield "verdict", line
    html = page(made)
    (row,) = (each for each in rows_of(html, "Effect at look") if f"<b>{metric}</b>" in each)
    yield "table", said(row)
    if metric != INTENT:
        return
    yield "reason", look.reason.partition(", look ")[0]
    yield "headline", said(html.partition("<h2>")[0])
    yield "card", said(card(made).partition("<figure>")[0])
    told = re.findall(r"<td.*?</td>", [*rows_of(html, "Looks")][-1], re.DOTALL)
    yield "looks", said(f"{told[-3]} {told[-1]}")
    yield "head", effect_of(made.head)
    index = index_page([made.head], [], set(), 0.0)
    yield "index", said(re.findall(r'data-label="effect">.*?</td>', index)[0])
    record = own.fleet.record
    pooled = campaign(own, judge_ring({"ams1": record, "fra1": record}))
    for row in rows_of(pooled, "Ring all"):
        if '<th scope="row"' in row:
            yield "campaign", said(row)


KINDS = st.sampled_from(["full"] * 5 + ["empty"] * 3 + ["few", "short", "unread"])
HOLES = st.fixed_dictionaries({(name, group): KINDS for name in PARTS for group in GROUPS})
NO_SOAK: Holes = {(name, group): "empty" for name in ("first", "second") for group in GROUPS}
ONE_SIDED: Holes = {(name, "control"): "empty" for name in ("first", "second")}
NO_NEWS: Holes = {("second", group): "empty" for group in GROUPS}
NO_BASELINE: Holes = {("before", group): "empty" for group in GROUPS}


@examples(60)
@given(HOLES, st.sampled_from([0.0, 0.4, 1.0, 3.0]))
@example(NO_SOAK, 0.0)
@example(NO_SOAK, 0.4)
@example(ONE_SIDED, 0.4)
@example(ONE_SIDED, 0.0)
@example(NO_NEWS, 0.4)
@example(NO_NEWS, 0.0)
@example(NO_BASELINE, 0.0)
@example(NO_BASELINE, 3.0)
def test_no_text_tells_of_a_window_what_was_not_measured_there(
    tmp_path_factory: pytest.TempPathFactory, holes: Holes, drops: float
) -> None:
    own = soaked(tmp_path_factory.mktemp("holes"), holes, drops)
    rows = {row.metric: row for row in own.looks[-1].metrics}
    for place, text, measured in shown_elsewhere(own, page(material(own))):
        is_told = CONTRAST.search(text) or MOVED.search(text) or NOTHING.search(text)
        assert measured > 0 or not is_told, (place, text)
        assert place != "prospect" or measured > LITTLE or "measured" in text, text
    for metric in COUNTED:
        shares = {cell: own.share(metric, *cell) for cell in LEVELS}
        levels = {cell: getattr(rows[metric], "_".join(cell)) for cell in LEVELS}
        # What is measured is told, and nothing else.
        assert {cell: share > 0 for cell, share in shares.items()} == {
            cell: level is not None for cell, level in levels.items()
        }
        least = min(shares.values())
        moved = sum(min(shares[group, when] for when in WHEN) > 0 for group in GROUPS)
        for place, text in texts_of(own, metric):
            contrast, of_groups = MOVED.subn("", text)
            assert bool(CONTRAST.search(contrast)) == (least > 0), (metric, place, text)
            assert of_groups == moved * (place in ("table", "headline", "card")), (place, text)
            for when in (when for (_, when), share in shares.items() if share < LITTLE):
                says = f"measured (in .*{WHEN[when]}|on no host)"
                assert re.search(says, text), (metric, place, text)


@pytest.mark.parametrize("holes", [NO_SOAK, ONE_SIDED, NO_BASELINE])
def test_an_effect_that_an_earlier_version_told_all_the_same_is_not_shown(
    tmp_path: Path, holes: Holes
) -> None:
    own = soaked(tmp_path, holes, 0.4)
    invented = {"ratio": 0.86, "interval": [0.8, 0.9], "p_better": 0.04, "p_worse": 0.96}
    rows = [replace(row, **invented, measured={}) for row in own.looks[-1].metrics]
    own = replace(own, looks=[replace(own.looks[-1], metrics=rows)])
    for place, text in texts_of(own, INTENT):
        if place in ("verdict", "table", "looks"):
            assert not CONTRAST.search(MOVED.sub("", text)), (place, text)
        assert place != "table" or "nothing to draw" in text
    assert own.looks[-1].conclusion.ratio is None
