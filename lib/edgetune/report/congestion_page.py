# SPDX-License-Identifier: Apache-2.0
"""The page of a PoP whose congestion control is tuned; ``congestion.html`` escapes all texts."""

from __future__ import annotations

from collections.abc import Sequence

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.congestion import ROUND
from edgetune.base.documents.rounds import RoundRow
from edgetune.report.axes import Axis, clock_ticks, from_zero, number
from edgetune.report.congestion import (
    TITLES,
    CongestionMaterial,
    color_of_congestion,
    commands,
    effect_tables,
    how_treated,
    newest_first,
    rates,
    said,
    state_text,
)
from edgetune.report.page import render
from edgetune.report.pictures import BOTTOM, FRAMES, TOP, Frame

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
        effects=[
            (title, [(TITLES.get(own.metric, own.metric), said(own)) for own in effects])
            for title, effects in effect_tables(material)
        ],
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
