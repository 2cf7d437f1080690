# SPDX-License-Identifier: Apache-2.0
"""Where the lines and points of a report's pictures stand; ``pictures.html`` draws them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import Phase
from edgetune.base.documents.look import Effect
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.words import State
from edgetune.base.durations import DAY
from edgetune.base.numbers import number, share
from edgetune.report.axes import Axis, around, clock_ticks, from_zero, of_ratios
from edgetune.report.effects import moved
from edgetune.report.timeseries import Day, Point, Step, Timeseries

TOP, BOTTOM = 24, 178
ROWS = {"test": 26, "control": 66}
STRIP = 300

_LETTER = 6.5
_APART = 13
_LANES = 5
_EDGE = 22
_GROUPS = ("test", "control")


@dataclass(frozen=True)
class Frame:
    """A width in pixels, the room beside the axes, and how many times and values are written.

    Each picture is drawn for a wide and for a narrow page: text that shrinks with a picture cannot
    be read on a telephone.
    """

    name: str
    width: int
    left: int
    right: int
    times: int
    values: int

    def across(self, low: float, high: float) -> Axis:
        """The axis of time."""
        return Axis(low, high, self.left, self.length)

    @property
    def length(self) -> int:
        """That of the axis across."""
        return self.width - self.left - self.right


FRAMES = (Frame("wide", 900, 52, 118, 8, 8), Frame("narrow", 380, 44, 92, 3, 4))


@dataclass(frozen=True)
class Band:
    """A phase in a picture; ``name`` is empty where it has no room."""

    state: str
    name: str
    at: float
    width: float


@dataclass(frozen=True)
class Line:
    """One group in a picture, as paths; ``label`` says where it ends, at ``beside``."""

    group: str
    slots: str
    steps: str
    label: str
    beside: float


@dataclass(frozen=True)
class Axes:
    """A frame with the states of the rollout, and where which value stands."""

    frame: Frame
    bands: Sequence[Band]
    across: Sequence[tuple[float, str]]
    upwards: Sequence[tuple[float, str]]


@dataclass(frozen=True)
class TimeDrawing(Axes):
    """One metric over time in one frame."""

    usual: float | None
    lines: Sequence[Line]


@dataclass(frozen=True)
class TimePicture:
    """One metric over time; ``text`` says in words what there is to be seen."""

    title: str
    unit: str
    text: str
    drawings: Sequence[TimeDrawing]


PHASES: Mapping[str, str] = {
    State.CLAIMED: "claimed",
    State.BASELINE: "baseline",
    State.CHANGING: "changes",
    State.SOAKING: "soak",
    State.HELD: "held",
    State.PROMOTING: "promotion",
    State.ROLLING_BACK: "rollback",
    State.COMPLETE: "complete",
    State.ROLLED_BACK: "rolled back",
    State.HANDING_OVER: "hand-over",
    State.HANDED_OVER: "handed over",
}


def time_picture(series: Timeseries, phases: Sequence[Phase]) -> TimePicture:
    """A metric over all phases; it must have values."""
    told = [f"{group} hosts {_course(series, group)}" for group in _GROUPS]
    return TimePicture(
        title=series.title,
        unit="multiples of the group's own baseline" if series.relative else series.unit,
        text="; ".join([*told, *filter(None, [series.caveat])]),
        drawings=[_time_drawing(series, phases, frame) for frame in FRAMES],
    )


def _course(series: Timeseries, group: str) -> str:
    """How a group went from the baseline to the newest look, in the metric's unit."""
    scale = series.scale.get(group, 1.0)
    values = [
        value * scale if math.isfinite(value) else None for _, _, value in series.steps[group]
    ]
    known = [value for value in values[: series.halves] if value is not None]
    before = scale if series.relative else statistics.fmean(known) if known else None
    if values[series.halves :]:
        return f"{moved(before, values[-1], series.unit)} by the newest look"
    told = f"had {number(before)} {series.unit}" if before is not None else "are not known"
    return f"{told} in the baseline"


def _time_drawing(series: Timeseries, phases: Sequence[Phase], frame: Frame) -> TimeDrawing:
    across = frame.across(phases[0].start, phases[-1].end)
    scale = around if series.relative else from_zero
    upwards = scale(series.values, BOTTOM, TOP - BOTTOM)
    sign = "×" if series.relative else ""
    times = clock_ticks(across.low, across.high, frame.times)
    return TimeDrawing(
        frame=frame,
        bands=[_band(phase, across) for phase in phases],
        across=[(across.at(at), text) for at, text in times],
        upwards=[(upwards.at(value), f"{number(value)}{sign}") for value in upwards.ticks(5)],
        usual=upwards.at(1.0) if series.relative else None,
        lines=_lines(series, across, upwards, sign),
    )


def _band(phase: Phase, across: Axis) -> Band:
    start, end = across.at(phase.start), across.at(phase.end)
    name = PHASES[phase.state]
    fits = len(name) * _LETTER + 6 <= end - start
    return Band(phase.state, name if fits else "", start, round(end - start, 1))


def _lines(series: Timeseries, across: Axis, upwards: Axis, sign: str) -> list[Line]:
    lines = []
    for group in ("control", "test"):
        steps = [step for step in series.steps[group] if math.isfinite(step[2])]
        last = steps[-1][2] if steps else math.nan
        is_known = steps and math.isfinite(series.steps[group][-1][2])
        told = f"{number(last)}{sign}" if is_known else "not measured"
        label = f"{group} {told}" if steps else ""
        beside = upwards.at(last) if steps else 0.0
        paths = _slots(series.slots[group], across, upwards), _steps(steps, across, upwards)
        lines.append(Line(group, *paths, label, beside))
    return _spread(lines)


def _spread(lines: Sequence[Line]) -> list[Line]:
    """Labels that would stand on each other are moved apart."""
    upper, lower = sorted(lines, key=lambda line: line.beside)
    lack = _APART - (lower.beside - upper.beside)
    if lack <= 0 or not (upper.label and lower.label):
        return list(lines)
    moved = {upper.group: -lack / 2, lower.group: lack / 2}
    return [replace(own, beside=round(own.beside + moved[own.group], 1)) for own in lines]


def _slots(points: Sequence[Point], across: Axis, upwards: Axis) -> str:
    parts, drawn = [], False
    for at, value in points:
        known = math.isfinite(value)
        if known:
            place = f"{across.at(at):g} {upwards.at(value):g}"
            # One that stands alone is a dot.
            parts.append(f"L{place}" if drawn else f"M{place}h0")
        drawn = known
    return "".join(parts)


def _steps(steps: Sequence[Step], across: Axis, upwards: Axis) -> str:
    parts, reached = [], math.nan
    for start, end, value in steps:
        x, y = across.at(start), upwards.at(value)
        parts.append(f"V{y:g}" if x == reached else f"M{x:g} {y:g}")
        reached = across.at(end)
        parts.append(f"H{reached:g}")
    return "".join(parts)


@dataclass(frozen=True)
class Bar:
    """What a host of a group counted in a day; ``text`` says it in words."""

    group: str
    at: float
    top: float
    width: float
    text: str


@dataclass(frozen=True)
class DayDrawing(Axes):
    """Daily sums in one frame."""

    bars: Sequence[Bar]


@dataclass(frozen=True)
class DayPicture:
    """Daily sums of both groups; ``text`` says in words what there is to be seen."""

    title: str
    text: str
    drawings: Sequence[DayDrawing]


def day_picture(title: str, days: Sequence[Day], shown: Sequence[Phase]) -> DayPicture | None:
    """A bar for each group and day, None if there is none to be seen."""
    sums = [own for day in days for own in day.sums.values() if own is not None]
    if not any(sums):
        return None
    told = [f"{group} hosts {_sums(days, group)}" for group in _GROUPS]
    drawings = [_day_drawing(days, max(sums), shown, frame) for frame in FRAMES]
    return DayPicture(title, "; ".join(told), drawings)


def _sums(days: Sequence[Day], group: str) -> str:
    """The first and the last one of a group."""
    known = [own for day in days for own in [day.sums.get(group)] if own is not None]
    return moved(known[0], known[-1], "a day") if known else "were not measured"


def _day_drawing(
    days: Sequence[Day], most: float, shown: Sequence[Phase], frame: Frame
) -> DayDrawing:
    across = frame.across(days[0].start, days[-1].start + DAY)
    upwards = from_zero([most], BOTTOM, TOP - BOTTOM)
    step = math.ceil(len(days) / frame.times)
    width = round(0.4 * frame.length * DAY / (across.high - across.low), 1)
    bars = [
        Bar(group, across.at(day.start + DAY / 2) - width * (group == "test"), upwards.at(own),
            width, f"{group} {_date(day)}: {number(own)}")
        for day in days
        for group, own in day.sums.items()
        if own is not None
    ]  # fmt: skip
    return DayDrawing(
        frame=frame,
        bands=[_band(phase, across) for phase in shown if phase.end > across.low],
        across=[(across.at(day.start + DAY / 2), _date(day)) for day in days[::step]],
        upwards=[(upwards.at(value), _short(value)) for value in upwards.ticks(5)],
        bars=bars,
    )


def _short(value: float) -> str:
    """A number that has room beside a narrow axis."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{number(value / unit)}{name}"
    return number(value)


def _date(day: Day) -> str:
    return time.strftime("%b %d", time.gmtime(day.start))


@dataclass(frozen=True)
class Dot:
    """One host among the others of its group."""

    host: str
    group: str
    x: float
    y: float
    text: str
    odd: bool


@dataclass(frozen=True)
class HostDrawing:
    """How much each host changed in one frame; ``middles`` are the medians of both groups."""

    frame: Frame
    across: Sequence[tuple[float, str]]
    one: float
    dots: Sequence[Dot]
    middles: Mapping[str, float]


@dataclass(frozen=True)
class HostPicture:
    """How much each host changed; ``text`` says in words what there is to be seen."""

    text: str
    drawings: Sequence[HostDrawing]


def host_picture(
    ratios: Mapping[str, Mapping[str, float]], odd: Sequence[str], part: str = ""
) -> HostPicture | None:
    """The change of each host by group, None if there is none to be seen; ``part`` says what of it
    was hardly measured."""
    values = [value for own in ratios.values() for value in own.values() if value > 0]
    if len(set(values)) < 2:
        return None
    middles = {g: statistics.median(own.values()) for g, own in ratios.items() if own}
    told = [f"median of {group}: {share(value)}" for group, value in middles.items()]
    return HostPicture(
        "; ".join(told) + part, [_host_drawing(ratios, values, odd, f) for f in FRAMES]
    )


def _host_drawing(
    ratios: Mapping[str, Mapping[str, float]],
    values: Sequence[float],
    odd: Sequence[str],
    frame: Frame,
) -> HostDrawing:
    across = of_ratios(values, frame.left + 20, frame.width - frame.left - 40)
    return HostDrawing(
        frame=frame,
        across=[(across.at(value), ratio_tick(value)) for value in across.ticks(frame.values)],
        one=across.at(1.0),
        dots=list(_dots(ratios, across, odd)),
        middles={g: across.at(statistics.median(own.values())) for g, own in ratios.items() if own},
    )


def _dots(
    ratios: Mapping[str, Mapping[str, float]], across: Axis, odd: Sequence[str]
) -> Iterator[Dot]:
    for group, own in ratios.items():
        for place, (host, ratio) in enumerate(sorted(own.items(), key=lambda item: item[1])):
            lane = (place % _LANES - _LANES // 2) * 5
            text = share(ratio)
            yield Dot(host, group, across.at(ratio), ROWS[group] + lane, text, host in odd)


@dataclass(frozen=True)
class Strip:
    """One metric's ratio of ratios with its interval; ``open_*`` where that has no bound."""

    low: float
    high: float
    at: float
    margin: float | None
    open_low: bool
    open_high: bool


@dataclass(frozen=True)
class Forest:
    """The ratios of all metrics on one axis."""

    ticks: Sequence[tuple[float, str]]
    one: float
    strips: Sequence[Strip | None]


def forest(rows: Sequence[Effect], metrics: Mapping[str, Metric]) -> Forest:
    """Rows of looks as intervals on one axis; None for one that could not be compared."""
    margins = [_margin(row, metrics[row.metric]) for row in rows]
    shown = [(row.known_ratio, *row.interval, margin) for row, margin in zip(rows, margins)]
    bounds = [bound for own in shown if own[0] is not None for bound in own if bound]
    across = of_ratios(bounds, _EDGE, STRIP - 2 * _EDGE)
    ticks = [(across.at(value), ratio_tick(value)) for value in across.ticks(5)]
    return Forest(ticks, across.at(1.0), [*map(partial(_strip, across), rows, margins)])


def ratio_tick(ratio: float) -> str:
    """What is written at a ratio on an axis: its share, or itself where that says nothing."""
    return share(ratio) if ratio >= 0.01 else f"{number(ratio)}×"


def _strip(across: Axis, row: Effect, margin: float | None) -> Strip | None:
    ratio, (low, high) = row.known_ratio, row.interval
    if ratio is None:
        return None
    return Strip(
        low=across.start if low is None else across.at(low),
        high=across.end if high is None else across.at(high),
        at=across.at(ratio),
        margin=across.at(margin) if margin else None,
        open_low=low is None,
        open_high=high is None,
    )


def _margin(row: Effect, metric: Metric) -> float | None:
    """The ratio beyond which it is harm, where the tuning permits some."""
    if not row.margin:
        return None
    beyond = 1.0 + row.margin
    return beyond if metric.better == "lower" else 1 / beyond
