# SPDX-License-Identifier: Apache-2.0
"""What people read of a PoP whose congestion control is tuned: as plain text, and as a page whose
texts ``congestion.html`` escapes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.congestion import ROUND, Chosen, PrefixEffect
from edgetune.base.documents.rounds import (
    CHOSEN,
    NEIGHBOURS,
    ROLLED_BACK,
    TOGETHER,
    Decisions,
    LookTaken,
    RoundRow,
    Rounds,
    prefixes_text,
)
from edgetune.base.durations import roughly, utc
from edgetune.base.numbers import bounds, number, share
from edgetune.base.sanitize import command
from edgetune.report.axes import Axis, clock_ticks, from_zero
from edgetune.report.findings import folded
from edgetune.report.page import render
from edgetune.report.pictures import BOTTOM, FRAMES, TOP, Frame

WIDTH = 79
SHOWN = 20
"""Prefixes of a text; a page has all."""

TITLES = {
    "delivery_rate": "delivery rate",
    "retransmits": "bytes sent again",
    "goodput": "goodput",
}


BY_BLOCKS = {
    CHOSEN: "Chosen prefixes, blocks with treatment against those without",
    NEIGHBOURS: "Other prefixes of their /16 or /32",
    TOGETHER: "Both together, by their rates: without a gain here they only took from each other",
}
HOLD_OUT = (
    "some chosen prefixes, drawn at random, are held out: shows how treated ones differ from "
    "these, also by what they take from them behind a shared bottleneck"
)
BLOCKS = (
    "blocks of time: shows what the treatment of all chosen prefixes does to them and to their "
    "neighbours, and not what it takes from anybody else"
)


@dataclass(frozen=True)
class CongestionMaterial:
    """What is known of a PoP. ``decisions`` is None before its first round, ``hosts`` are all of
    the inventory, and ``entry`` whether that has something about its congestion control.

    ``missing`` says in sentences what is not known.
    """

    pop: str
    entry: bool
    hosts: Sequence[str]
    decisions: Decisions | None
    rounds: Rounds
    chosen: Sequence[Chosen]
    missing: Sequence[str]
    made: float

    @property
    def newest(self) -> RoundRow | None:
        """The newest round that was read."""
        return self.rounds.rows[-1] if self.rounds.rows else None

    @property
    def look(self) -> LookTaken | None:
        """The newest look."""
        return self.decisions.looks[-1] if self.decisions and self.decisions.looks else None

    @cached_property
    def windows(self) -> Mapping[str, int]:
        """The prefixes that hosts were told of, each with its initial window, 0 for none."""
        own = self.rounds.configuration
        return {each.prefix: each.initcwnd for each in own.prefixes} if own else {}

    @property
    def with_it(self) -> list[str]:
        """Hosts that confirmed the configuration, and whose time is not up."""
        own = self.rounds.configuration
        return [
            name
            for name in self.hosts
            if own is not None
            and name in self.rounds.hosts
            and self.rounds.hosts[name].number == own.number
            and self.made - self.rounds.hosts[name].at <= own.ttl
        ]

    @property
    def unwell(self) -> list[tuple[str, str]]:
        """Hosts that did not confirm it the last time, with the reason."""
        known = self.rounds.hosts
        there = {*self.with_it}
        late = [(name, known[name].error) for name in self.with_it if known[name].error]
        return [*late, *((n, self._why(n)) for n in self.hosts if n not in there)]

    def _why(self, name: str) -> str:
        known = self.rounds.hosts.get(name)
        if known is None:
            return "was never told anything"
        if known.error:
            return known.error
        return f"confirmed configuration {known.number} {self.ago(known.at)} ago"

    def ago(self, at: float) -> str:
        """How long ago; a clock that was set back makes no span that is negative."""
        return roughly(max(0, round(self.made - at)))

    def since(self, own: Chosen) -> str:
        """When a prefix was chosen, to the minute, in UTC."""
        at = time.gmtime(own.since * ROUND)
        return time.strftime("%Y-%m-%d %H:%MZ", at)


def state_text(material: CongestionMaterial) -> str:
    """How a PoP stands, in a few words."""
    decisions, own = material.decisions, material.rounds.configuration
    if decisions is None:
        return "no round yet" if material.entry else "not tuned"
    if decisions.state == ROLLED_BACK:
        left = f", not yet on {len(decisions.pending)} hosts" if decisions.pending else ""
        by = f" by {decisions.by}" if decisions.by else ""
        return f"rolled back {utc(decisions.since)}{by}: {decisions.reason}{left}"
    if material.rounds.resting:
        return "tuning, in a block of time without treatment"
    if own is None or not own.prefixes:
        return "tuning, nothing is treated yet"
    there = f"{len(material.with_it)} of {len(material.hosts)} hosts"
    return f"tuning, {prefixes_text(len(own.prefixes))} treated on {there}"


def color_of_congestion(material: CongestionMaterial) -> str:
    """Slack's name of the colour that says how it does."""
    decisions, rounds = material.decisions, material.rounds
    if decisions is None:
        return ""
    if decisions.state == ROLLED_BACK:
        return "danger"
    in_part = rounds.is_treating and material.unwell
    return "warning" if rounds.problem or rounds.waits or in_part else "good"


def overview_text(materials: Sequence[CongestionMaterial]) -> str:
    """A line for each PoP."""
    lines: list[str] = []
    for own in materials:
        lines += _folded(f"{own.pop}  ", state_text(own))
        lines += _folded("    ", own.rounds.problem or own.rounds.waits)
    return "\n".join(lines) or "No PoP has congestion: in the inventory."


def congestion_text(material: CongestionMaterial) -> str:
    """A PoP in full."""
    lines = _folded(f"{material.pop}: ", state_text(material))
    for name, text in _facts(material):
        lines += _folded(f"  {name:<10} ", text)
    lines += [line for text in material.missing for line in _folded("  ", text)]
    for title, effects in effect_tables(material):
        lines += ["", *_folded("", f"{title}:")]
        for metric, text in effects:
            lines += _folded(f"  {metric:<17} ", text)
    lines += ["", *_levels(material)] if _levels(material) else []
    lines += ["", *_prefixes(material)]
    lines += ["", *(f"  {what + ':':<11} {line}" for what, line in commands(material).items())]
    return "\n".join(line.rstrip() for line in lines)


def _facts(material: CongestionMaterial) -> Iterator[tuple[str, str]]:
    rounds, own, newest = material.rounds, material.rounds.configuration, material.newest
    if own is not None:
        age = f"{material.ago(rounds.since)} old, confirmed {material.ago(rounds.confirmed)} ago"
        yield "has", f"configuration {own.number} ({own.checksum}), {own.algorithm}, {age}"
    there = {*material.with_it}
    for name, why in material.unwell[:SHOWN] if rounds.is_treating else []:
        yield "has it" if name in there else "not on", f"{name}: {why}"
    if newest is not None:
        yield "round", f"{material.ago((newest.round + 1) * ROUND)} ago: {row_text(newest)}"
    if rounds.problem:
        yield "problem", rounds.problem
    if rounds.waits:
        yield "waits", rounds.waits
    if material.decisions and material.decisions.windows_off:
        yield "window", f"no initial windows any more: {material.decisions.windows_off}"
    if material.look is not None:
        yield "design", BLOCKS if material.look.blocks else HOLD_OUT
    for prefix, why in [*rounds.skipped.items()][:3]:
        yield "skipped", f"{prefix}: {why}"


def row_text(row: RoundRow) -> str:
    """A round in a few words."""
    measured = f"{prefixes_text(row.measured)} measured"
    return f"{measured}, {row.chosen} chosen, {row.new} new, {row.gone} let go"


def effect_tables(
    material: CongestionMaterial,
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """What the newest look found by metric, of the treatment and of initial windows apart."""
    look = material.look
    if look is None:
        return
    when = utc(look.at)
    for group, effects in look.blocks.items():
        yield f"{BY_BLOCKS.get(group, group)}, look of {when}", _by_metric(effects, "blocks")
    if not look.blocks:
        yield f"Treated prefixes against held-out ones, look of {when}", _by_metric(look.effects)
    if any(own.ratio is not None for own in look.windows):
        title = "Treated prefixes with an initial window against those without"
        yield title, _by_metric(look.windows)


def _by_metric(effects: Sequence[PrefixEffect], units: str = "prefixes") -> list[tuple[str, str]]:
    return [(TITLES.get(own.metric, own.metric), said(own, units)) for own in effects]


def said(effect: PrefixEffect, units: str = "prefixes") -> str:
    """An effect with its interval and p-value, and what that says."""
    groups = f"{effect.treated} against {effect.held_out} {units}"
    if effect.ratio is None or effect.interval is None:
        return f"too few to compare: {groups}"
    p = min(own for own in (effect.p_better, effect.p_worse) if own is not None)
    word = "better" if effect.is_better else "worse" if effect.is_worse else "no clear difference"
    interval = bounds(effect.interval)
    return f"{share(effect.ratio)} ({interval}), p {number(p)}: {word}; {groups}"


def rates(levels: Sequence[float] | None) -> str:
    """Percentiles in Mbit/s."""
    if levels is None:
        return "not known"
    return " and ".join(number(own * 8 / 1e6) for own in levels)


def _levels(material: CongestionMaterial) -> list[str]:
    newest = material.newest
    if newest is None:
        return []
    lines: list[str] = []
    for name, own in newest.levels.items():
        if own.treated is None and own.held_out is None:
            continue
        told = f"treated {rates(own.treated)}, held out {rates(own.held_out)} Mbit/s"
        lines += _folded(f"  {TITLES.get(name, name):<17} ", told)
    return ["5th and 10th percentile of the prefixes, newest round:", *lines] if lines else []


def newest_first(material: CongestionMaterial) -> list[Chosen]:
    """The chosen prefixes."""
    return sorted(material.chosen, key=lambda own: (-own.since, own.prefix))


def how_treated(material: CongestionMaterial, own: Chosen) -> str:
    """Whether a prefix is treated, and its initial window; what hosts do not have is not."""
    if own.held_out:
        return "held out"
    window = material.windows.get(own.prefix)
    if window is None:
        return "not treated"
    return f"treated, window {window}" if window else "treated"


def _prefixes(material: CongestionMaterial) -> list[str]:
    chosen = newest_first(material)
    if not chosen:
        return ["No prefix is chosen."]
    held_out = sum(own.held_out for own in chosen)
    treated = sum(how_treated(material, own).startswith("treated") for own in chosen)
    missing = len(chosen) - held_out - treated
    parts = [f"{prefixes_text(treated)} treated"] if treated else []
    parts += [f"{prefixes_text(missing)} chosen but not treated"] if missing else []
    lines = [
        f"{', '.join([*parts, f'{held_out} held out'])}, the newest first:",
        f"  {'prefix':<23} {'chosen':<17}  duty  flap",
    ]
    for own in chosen[:SHOWN]:
        since = material.since(own)
        shares = f"{own.duty:5.0%} {own.flaps:5.0%}"
        lines.append(f"  {own.prefix:<23} {since:<17} {shares}  {how_treated(material, own)}")
    more = len(chosen) - SHOWN
    return [*lines, f"  ... and {more} more, on the page"] if more > 0 else lines


def commands(material: CongestionMaterial) -> dict[str, str]:
    """What a person may do, by what it does."""
    if material.decisions is None:
        return {"begin": command("tune_congestion", pop=material.pop)} if material.entry else {}
    back = {"roll back": command("roll_back_congestion", pop=material.pop)}
    if material.decisions.state == ROLLED_BACK:
        return {**back, "resume": command("resume_congestion", pop=material.pop)}
    return back


def _folded(head: str, text: str) -> list[str]:
    if not text:
        return []
    return folded(head + text, WIDTH, further=" " * min(len(head), 22))


_TONES = {"good": "improved", "warning": "inconclusive", "danger": "degraded"}


@dataclass(frozen=True)
class Bars:
    """New prefixes by round in one frame: where each bar stands, as (x, y, height)."""

    frame: Frame
    width: float
    bars: Sequence[tuple[float, float, float]]
    across: Sequence[tuple[float, str]]
    upwards: Sequence[tuple[float, str]]


def congestion_page(material: CongestionMaterial) -> str:
    """The whole page."""
    decisions, skipped = material.decisions, material.rounds.skipped
    newest, there, unwell = material.newest, {*material.with_it}, dict(material.unwell)
    return render(
        "congestion.html",
        material.made,
        material=material,
        decisions=decisions,
        rounds=material.rounds,
        tone=_TONES.get(color_of_congestion(material), ""),
        state=state_text(material),
        commands=commands(material),
        effects=[*effect_tables(material)],
        design=dict(_facts(material)).get("design", ""),
        levels=[
            (TITLES.get(name, name), rates(own.treated), rates(own.held_out))
            for name, own in (newest.levels.items() if newest else ())
        ],
        prefixes=[
            (own, material.since(own), how_treated(material, own), skipped.get(own.prefix, ""))
            for own in newest_first(material)
        ],
        hosts=[(name, name in there, unwell.get(name, "")) for name in material.hosts],
        pictures=new_prefixes(material.rounds.rows),
    )


def new_prefixes(rows: Sequence[RoundRow]) -> list[Bars]:
    """How many new ones each round brought, as in the figure of the article."""
    return [_bars(rows, frame) for frame in FRAMES] if rows else []


def _bars(rows: Sequence[RoundRow], frame: Frame) -> Bars:
    start, end = rows[0].round * ROUND, (rows[-1].round + 1) * ROUND
    across = Axis(start, end, frame.left, frame.length)
    upwards = from_zero([max(1, row.new) for row in rows], BOTTOM, TOP - BOTTOM)
    width = max(1.0, round(frame.length * ROUND / (end - start) - 1, 1))
    bars = [
        (across.at(row.round * ROUND), upwards.at(row.new), round(BOTTOM - upwards.at(row.new), 1))
        for row in rows
        if row.new
    ]
    return Bars(
        frame,
        width,
        bars,
        [(across.at(at), text) for at, text in clock_ticks(start, end, frame.times)],
        [(upwards.at(own), number(own)) for own in upwards.ticks(5) if own == int(own)],
    )
