# SPDX-License-Identifier: Apache-2.0
"""The report of a rollout: what stands on its page and in its pictures, and that no text does
anything there."""

from __future__ import annotations

import copy
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.base.documents.baseline import Counted
from edgetune.base.documents.batch import Batch, HostStep
from edgetune.base.documents.head import Approved, Entry, Head, Phase, Quarantine, phases
from edgetune.base.documents.look import Effect, Look, Moment, read_look
from edgetune.base.documents.plan import Plan
from edgetune.base.documents.reading import decoded, encoded
from edgetune.base.numbers import number
from edgetune.base.sanitize import one_line
from edgetune.intent.metrics.catalogue import METRICS
from edgetune.judge.look import no_look, take_look
from edgetune.judge.measured import EVENTS, measure_baseline, measure_block, packed_rows, rows_of
from edgetune.judge.power import prospect
from edgetune.judge.series import Window, read_window
from edgetune.report.axes import Axis, clock_ticks, of_ratios
from edgetune.report.page import Event, Material, page
from edgetune.report.pictures import forest
from edgetune.report.timeseries import timeseries_of
from tests.support.builders import metrics_named, plan, samples, table_of, tuning
from tests.support.hostile import HOSTILE

START, SLOT = 1_790_000_000.0, 10
JUDGED = ("listen_drops", "health_failed", "packets")
OPTIONS = {"interval": SLOT, "baseline": 600, "soak": 610, "warmup": 10, "looks": 2, "seed": 7}
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "aside", "section"),
    *("footer", "h1", "h2", "p", "a", "b", "small", "span", "code", "br", "ul", "li", "dl", "div"),
    *("dt", "dd", "table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "time"),
    *("figure", "figcaption"),
    *("svg", "path", "rect", "text", "circle"),
}
EMPTY = ("meta", "br", "path", "rect")
SOURCE = tuning().settings[0].source
MARCH = "2026-03-05 12:00:00Z"


@pytest.fixture(autouse=True)
def _in_utc(zone: Callable[[str], None]) -> None:
    """Local times stand beside those in UTC elsewhere."""
    zone("UTC")


class Reader(HTMLParser):
    """Tags, attributes and texts of a page; every tag must be closed in its turn."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in EMPTY or self._open.pop() == tag, tag
        self.text += " " if tag in ("td", "th") else ""

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.text += data


def said(html: str) -> str:
    """The text of a page, with single spaces."""
    return re.sub(r"\s+", " ", Reader(html).text)


def effect(ratio: float, metric: str = "listen_drops") -> Effect:
    """What a look found of the intent's metric; its interval is narrow."""
    interval: list[float | None] = [round(ratio * 0.25 / 0.3, 3), round(ratio * 0.4 / 0.3, 3)]
    levels = (3e-3, 3e-3, 3e-3 * ratio, 3e-3)
    found = (0.01, 1.0, ratio)
    return Effect(metric, "intent", "rx_packets", 0.0, {}, 1.0, *levels, ratio, interval, *found)


def window(rates: dict[str, float], start: float, seconds: float) -> Window:
    rows = samples(rates, start, seconds, boot="one", seed=int(start) % 89)
    end, judged = start + seconds, metrics_named(*JUDGED)
    return read_window(table_of(rows), list(rates), start, end, SLOT, judged)


def history(*states: str) -> list[Entry]:
    return [Entry(START + 600 * at, own, "ana", f"{own} begins") for at, own in enumerate(states)]


def material(
    tmp_path: Path, hosts: int = 8, factor: float = 0.3, usual: float = 3.0, seconds: float = 600
) -> Material:
    """A rollout at the end of its soak; test hosts drop ``factor`` times as much as before."""
    made = plan(tmp_path, hosts=hosts, **OPTIONS)
    tested = made.groups.test
    names = made.groups.hosts
    rates = dict.fromkeys(names, usual)
    before = window(rates, START, seconds)
    baseline = measure_baseline(before, made.strata)
    baseline = replace(baseline, power=prospect(made, made.strata, baseline))
    after = {name: usual * (factor if name in tested else 1) for name in names}
    looks: list[Look] = []
    for at in (0, 1):
        seen = window(after, START + 1200 + 600 * at, seconds)
        block = measure_block(seen, made.strata, baseline)
        blocks = [*(look.block for look in looks if look.block), block]
        moment = Moment(at + 1, 2, (at + 1) / 2)
        last = looks[-1] if looks else None
        look = take_look(made, made.strata, baseline, blocks, moment, last)
        looks.append(replace(look, number=at, block=block, until=seen.end, at=seen.end))
    head = Head(
        id="lab1-1",
        pop="lab1",
        tuning=made.tuning.name,
        plan=made.digest,
        state="soaking",
        verdict=looks[-1].conclusion,
        history=history("claimed", "baseline", "changing", "soaking"),
        created=START,
        by="ana",
        owner="run-1",
        epoch=3,
    )
    steps = [HostStep("done", START + 700), HostStep()]
    undone = len(made.batches)
    batches = [
        Batch(head.id, number, own.batch_type, own.group, dict.fromkeys(own.hosts, step))
        for number, own in enumerate(made.every_batch)
        for step in [steps[number >= undone]]
    ]
    rest: tuple[Any, ...] = ([], "", "", [], [], START + 2400, tuning())
    return Material(head, made, baseline, looks, batches, before, *rest)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return material(tmp_path_factory.mktemp("plan"))


@pytest.fixture
def whole(kept: Material) -> Material:
    """The documents of a rollout, to be changed by a test."""
    return copy.deepcopy(kept)


def young(whole: Material, states: int, **kept: Any) -> Material:
    """The same rollout before its first look, in the last of so many states."""
    told = whole.head.history[:states]
    head = replace(whole.head, state=told[-1].state, verdict=None, history=told)
    return replace(whole, **{"head": head, "looks": [], **kept})


def test_a_page_says_what_was_done_and_what_came_of_it(whole: Material) -> None:
    text = said(page(whole))
    first, second = "baseline baseline begins (ana)", "batch 1 of 4 change: e006: 1 done"
    for told in (
        "accept_queue 1.0.0 on lab1",
        "improved soaking Test hosts dropped 71 % fewer connections than control",
        "sysctl:net.core.somaxconn 8 4096 8: e000..e007",
        "2 of 2 2026-09-21 14:53:20Z 100 % improved: promote −71 % (",
        "Nothing happened, on any host, of: health checks that failed, share.",
        "health_failed at most +50 %, packets at most -5 %",
        "would be seen with 80% power",
        f"2026-09-21 14:23:20Z {first} 2026-09-21 14:25:00Z {second}",
        "To take them now: st2 run edgetune.advance_rollout rollout=lab1-1",
        "To take it back: st2 run edgetune.roll_back_pop rollout=lab1-1",
        "time, UTC",
        "change of listen_drops (log scale)",
    ):
        assert told in text, told
    fell = r"from [\d,]+ to \d\d\d per million packets \(−7\d %\) by the newest look"
    own = "multiples of the group's own baseline"
    assert re.search(f"{own}Test hosts fell {fell}; control hosts (rose|fell|stayed)", text)
    assert re.search(r"Test against control: −71 % \(−7\d % to −[67]\d %\)", text)
    assert re.search(r"−71 % \(−7\d % to −[67]\d %\)better", text)


def test_what_is_not_known_or_was_not_recorded_is_said(whole: Material) -> None:
    young_text = said(page(young(whole, 3)))
    assert re.search(r"Test hosts had [\d,]+ per million packets in the baseline;", young_text)
    assert "Requests lostnot measured: no metric counts the requests of clients" in young_text
    assert "Out of serviceno host" in young_text
    # Versions before 0.6 kept no baseline, and earlier ones not how long a host was out.
    drained = HostStep("done", START + 700, lb_before="ready")
    old = [replace(own, hosts=dict.fromkeys(own.hosts, drained)) for own in whole.batches]
    lost: dict[str, Any] = {"baseline": None, "window": None, "missing": ["No samples are left."]}
    text = said(page(replace(whole, batches=old, **lost)))
    own = "Test hosts change not known; "
    assert re.search(f"{own}\\d+ per million packets after by the newest look", text)
    assert "not known: there is no baseline in the record" in text
    assert "No samples are left." in text and "Both groups over time" in text
    assert "Out of serviceof 8 hosts not recorded" in text
    assert text.count("changed not recorded ") == 8


def test_metrics_and_their_parts_are_told_as_the_plan_has_them(whole: Material) -> None:
    own = METRICS["listen_drops"]
    ours = replace(own, title="drops of a site", unit="per thousand packets", scale=1000.0)
    planned = replace(whole.plan, definitions={"listen_drops": ours})
    (*_, last) = whole.looks
    part = replace(last.metrics[-1], role="part")
    looks = [*whole.looks[:-1], replace(last, metrics=[*last.metrics[:-1], part])]
    told = said(page(replace(whole, plan=planned, looks=looks)))
    assert "drops of a site" in told and own.title not in told
    assert "per thousand packets" in told and own.unit not in told
    assert "part: packets received" in told


def test_a_page_needs_nothing_else_and_says_what_each_part_of_it_is(whole: Material) -> None:
    html = page(whole)
    read = Reader(html)
    assert read.tags <= TAGS
    names = {name for name, _ in read.attributes}
    assert not names & {"src", "style", "srcset", "action"}
    assert not any(name.startswith("on") for name in names)
    # A link is followed by a person alone.
    assert {value for name, value in read.attributes if name == "href"} == {SOURCE, "index.html"}
    assert not re.search(r"url\(|@import|https?:", html.replace(SOURCE, ""))
    # A screen reader is told what each table and picture is.
    tables = re.findall(r"<table.*?</table>", html, re.DOTALL)
    assert len(tables) == 8
    for table in tables:
        assert re.search(r"<caption>[^<]", table)
        assert not re.search(r"<th(?![^>]*scope=)[ >]", table), table
        assert not re.search(r"<th[^>]*></th>", table), table
    for drawn in re.findall(r"<svg[^>]*>", html):
        assert 'aria-hidden="true"' in drawn or re.search(r'role="img" aria-label="[^"]+"', drawn)
    # So is a reader of each cell on a narrow page, but the group of a host and pictures.
    bodies = "".join(re.findall(r"<tbody>.*?</tbody>", html, re.DOTALL))
    bare = {cell for cell in re.findall(r"<td[^>]*>", bodies) if "data-label=" not in cell}
    assert bare == {f'<td class="{own}">' for own in ("picture", "test", "control", "free")}


def test_a_page_says_what_the_tuning_does_and_why(whole: Material) -> None:
    text = said(page(whole))
    assert "Let the kernel queue as many accepted connections as the web server asks for." in text
    assert f"the client waits a second or more before it tries again. {SOURCE}" in text
    other = said(page(replace(whole, tuning=None)))
    assert "The reasons are not known: the catalogue does not hold accept_queue 1.0.0" in other
    assert SOURCE not in other
    for source in ("javascript:alert(1)", "a book", "https://x y"):
        made = tuning()
        own = replace(made, settings=(replace(made.settings[0], source=source),))
        read = Reader(page(replace(whole, tuning=own)))
        assert source in read.text
        links = [value for name, value in read.attributes if name == "href"]
        assert links == ["index.html"]


def test_local_time_stands_beside_utc(whole: Material, zone: Callable[[str], None]) -> None:
    assert "beside them" not in said(page(whole))
    zone("Asia/Kolkata")
    text = said(page(whole))
    assert "2026-09-21 14:53:20Z 20:23:20 IST" in text
    assert "beside them stands the controller's own time (IST, UTC+05:30 when this" in text


@pytest.mark.parametrize(
    ("states", "approved", "says"),
    [
        (1, None, "not recorded: an earlier version began it"),
        (2, Approved(""), "nobody had to approve it"),
        (3, Approved("ben"), "by ben"),
        (4, Approved("ben", 1772712000.0, "we <b>talked</b>"), f"{MARCH} by ben: we <b>talked</b>"),
    ],
)
def test_a_page_of_a_rollout_that_is_not_judged_yet(
    whole: Material, states: int, approved: Approved | None, says: str
) -> None:
    measured = {} if states > 2 else {"baseline": None, "window": None}
    made = young(whole, states, **measured)
    text = said(page(replace(made, head=replace(made.head, approved=approved))))
    assert f"Approved{says}" in text
    assert "no verdict yet" in text
    assert "Effect at look" not in text and "Looks" not in text
    assert ("Both groups over time" in text) == (states > 2)
    assert ("Nothing is known yet of: connections dropped" in text) == (states <= 2)


def test_a_page_of_what_was_taken_back_says_why(tmp_path: Path) -> None:
    whole = material(tmp_path, factor=6)
    told = [*whole.head.history, *history(*"abcd", "rolling_back", "rolled_back")[4:]]
    head = replace(whole.head, state="rolled_back", history=told)
    text = said(page(replace(whole, head=head)))
    assert "degraded rolled back Taken back: " in text
    assert (
        "Taken back: rolling_back begins (ana) The verdict before that: Test hosts dropped" in text
    )
    assert "Rolled back since 2026-09-21 15:03:20Z (ana)." in text


def test_looks_without_numbers_quarantined_hosts_and_pauses_are_told_with_the_evidence(
    whole: Material,
) -> None:
    nothing = replace(no_look(Moment(3, 3, 1.0), "no samples"), until=START + 2400)
    kept = {"number": 3, "verdict": "improved", "decision": "promote", "reason": "as of old"}
    old = read_look("look", {**kept, "assignments": 20, "metrics": [{"metric": "listen_drops"}]})
    event = {"created": "then", "severity": "Critical", "message": "bad memory"}
    events = [event, {**event, "message": "then more"}]
    bmc: dict[str, object] = {"power": "On", "health": "Critical", "events": events}
    why = Quarantine("gone", START, 2, "rebooting", "b-1", "ready", bmc)
    out = Quarantine("gone", out_of_service=True, seen="maint")
    inside = Quarantine("gone", out_of_service=False, seen="ready", noted="no room")
    stuck = {"e003": why, "e004": Quarantine("old"), "e005": out, "e006": inside}
    own = Event(START + 900, "state", "paused", "surge: 2.4 times")
    over = Event(START + 950, "state", "resumed", "asked", "bo")
    changes: dict[str, Any] = {
        "head": replace(whole.head, quarantined=stuck),
        "looks": [*whole.looks, nothing, old],
        "pauses": [own, over],
        "paused": "lab1 is paused (surge)",
    }
    text = said(page(replace(whole, waits="waits since noon", **changes)))
    for part in (
        *("gone since", "at the step rebooting (batch=2)", "boot b-1", "power On"),
        "NOT seen out of service: ready; no room",
        "lab1 is paused (surge). No further batch begins.",
        "The present batch waits since noon.",
        "14:28:20Z paused surge: 2.4 times 2026-09-21 14:29:10Z resumed asked (bo)",
        "inconclusive: hold no samples, look 3 of 3 not tested not tested",
        "3 not recorded not recorded improved: promote as of old",
        "Effect at look 2 of 2",
    ):
        assert part in text, part
    assert "2 not recorded not recorded" not in text
    counted = ("bad memory", "then more", "NOT known to be out of service", "out of service: maint")
    assert [text.count(part) for part in counted] == [1, 1, 2, 1]


def with_text(value: Any, text: str) -> Any:
    """The documents with this at every place where a stranger's text may stand."""
    strange = {"reason", "by", "runtime", "persistent", "owner", "text", "error", "id", "version"}
    if isinstance(value, dict):
        return {
            key: text if key in strange and isinstance(own, (str, type(None))) else own
            for key, own in ((key, with_text(own, text)) for key, own in value.items())
        }
    return [with_text(own, text) for own in value] if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_every_text_is_only_shown(whole: Material, text: str) -> None:
    documents: dict[str, Any] = {
        name: with_text(encoded(getattr(whole, name)), text)
        for name in ("head", "looks", "batches")
    }
    plan: Any = with_text(whole.plan.document(), text)
    bmc: dict[str, Any] = dict.fromkeys(("power", "boot_progress", "health"), text)
    bmc["events"] = [dict.fromkeys(("created", "severity", "message"), text)] * 2
    why = {"reason": text, "since": START, "batch": 1, "step": text, "boot_id": text}
    documents["head"]["quarantined"] = {text: {**why, "load_balancer": text, "bmc": bmc}}
    documents["head"]["pop"] = text
    documents["looks"][-1]["doubts"] = [{"kind": text, "text": text, "biased": True}]
    documents["head"] = decoded("head", Head, documents["head"])
    documents["looks"] = [decoded("look", Look, look) for look in documents["looks"]]
    documents["batches"] = [decoded("batch", Batch, own) for own in documents["batches"]]
    profile = plan["profiles"][0]
    profile.update(left_out={text: text})
    profile["before"][0]["attributes"] = {text: {"current": text, "pending": None, "wanted": text}}
    plan.update(unchanged=[text], digest=text)
    documents["plan"] = decoded("plan", Plan, plan)
    pause = Event(START, "state", "paused", f"{text}: {text}", text)
    documents.update(missing=[text], pauses=[pause], paused=text, waits=text)
    html = page(replace(whole, **documents))
    read = Reader(html)
    assert read.tags <= TAGS
    assert not any(name.startswith("on") for name, _ in read.attributes)
    assert read.text.count(one_line(text)) >= 30
    assert all(char.isprintable() or char == "\n" for char in html)


def test_the_time_series_is_relative_to_each_groups_own_baseline(whole: Material) -> None:
    first, guard, _ = timeseries_of(whole.plan, whole.baseline, whole.looks, whole.window)
    assert (first.metric, first.relative, guard.relative) == ("listen_drops", True, False)
    for group, factor in (("test", 0.3), ("control", 1.0)):
        assert [round(value, 1) for _, _, value in first.steps[group]] == [1, 1, factor, factor]
        known = [value for _, value in first.slots[group] if math.isfinite(value)]
        assert len(known) > 50 and abs(sum(known) / len(known) - 1) < 0.02
    assert first.steps["test"][2][:2] == (START + 1200, START + 1800)
    assert set(guard.values) == {0.0}


def test_hosts_that_were_not_compared_are_not_in_the_one(whole: Material) -> None:
    gone, block = whole.plan.groups.test[0], whole.looks[0].block
    del whole.looks[-1].hosts["listen_drops"][gone]
    assert block is not None
    rows = rows_of([block], "listen_drops", block.hosts)[0]
    rows[block.hosts.index(gone), EVENTS] = 1e9
    block.metrics["listen_drops"] = Counted(packed_rows(rows))
    first = timeseries_of(whole.plan, whole.baseline, whole.looks, whole.window)[0]
    assert max(first.values) < 2
    assert f"{gone} test changed, not compared" in said(page(whole))


def test_phases_follow_the_history() -> None:
    told = history("claimed", "baseline", "baseline", "changing")
    assert phases(told, START + 5000) == [
        Phase("claimed", START, START + 600),
        Phase("baseline", START + 600, START + 1800),
        Phase("changing", START + 1800, START + 5000),
    ]
    over = [*told, Entry(START + 4000, "complete", "", "")]
    assert phases(over, START + 1e6)[-1] == Phase("complete", START + 4000, START + 4000)


def test_an_interval_without_bounds_ends_in_arrows(whole: Material) -> None:
    row = replace(whole.looks[-1].metrics[0], margin=0.0, ratio=math.inf, interval=[0.5, None])
    guard = replace(row, metric="cpu", margin=0.1, ratio=0.0, interval=[None, 2.0])
    drawn = forest([row, guard], metrics_named(row.metric, "cpu"))
    first, second = drawn.strips
    assert first and second
    assert (first.open_low, first.open_high, first.margin) == (False, True, None)
    assert first.at == first.high > drawn.one > first.low
    assert second.open_low and second.at == second.low
    assert second.margin is not None and drawn.one < second.margin < second.high


def test_ticks_are_round() -> None:
    for low, high, log, ticks in (
        (0, 7, False, [0, 2, 4, 6]),
        (0.97, 1.04, False, [0.98, 1, 1.02, 1.04]),
        (0.01, 2, True, [0.01, 0.03, 0.1, 0.3, 1]),
        (0.3, 9, True, [0.5, 1, 2, 5]),
        (0.7, 1.4, True, [0.8, 1, 1.2, 1.4]),
        (1e-9, 1e9, True, [1e-9, 1e-5, 1e-1, 1e3, 1e7]),
    ):
        assert Axis(low, high, 0, 100, log).ticks(5) == pytest.approx(ticks), (low, high)


def test_numbers_have_three_digits_that_say_something_and_ticks_are_round_times() -> None:
    values = (0, 1.0, 0.0157569, 118171.4, 2.5, 100, 0.00625, 3.2e-9, 1.5e7)
    told = "0 1 0.0158 118,171 2.5 100 0.00625 3.2e-09 1.5e+07"
    assert [*map(number, values)] == told.split()
    assert [text for _, text in clock_ticks(0, 60)][:3] == ["00:00:00", "00:00:10", "00:00:20"]
    assert [text for _, text in clock_ticks(0, 86400 * 30)][1] == "Jan 05"
    assert len(clock_ticks(0, 86400 * 60)) <= 9
    axis = of_ratios([0.5, 2.0], 10, 80)
    assert [axis.at(value) for value in (0.0, 1.0, math.inf)] == [10, 50, 90]
