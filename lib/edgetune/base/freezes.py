# SPDX-License-Identifier: Apache-2.0
"""When nothing may begin: weekly freeze windows and the events of a calendar.

Both are written in local times of a time zone. Where a clock shows a time twice, or skips it, the
longer freeze holds.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any

from edgetune.base.dataclass import dataclass
from edgetune.base.fields import Fields

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WEEK_HOURS = 168
EVERY_HOUR = frozenset(range(WEEK_HOURS))
"""Of the week, from Monday 00:00 UTC."""
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00"
_MOMENT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?)?"
# Beyond them no clock of a zone is known, and the day after the last day is no date.
_FIRST_YEAR, _LAST_YEAR = "1980", "2199"
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Freeze:
    """A window on some days of the week, from ``start`` to the next ``end`` after it.

    Both are minutes after midnight; an ``end`` that is not later than ``start`` is that of the
    next day.
    """

    name: str
    days: tuple[str, ...]
    start: int
    end: int
    zone: tzinfo

    def until(self, moment: float) -> float | None:
        """When it ends, if it is in force at ``moment`` (both in epoch seconds)."""
        ends = [end for start, end in self.spans(moment, moment) if start <= moment < end]
        return max(ends, default=None)

    def spans(self, begin: float, end: float) -> list[tuple[float, float]]:
        """From when to when it is in force, each time that may reach between these moments."""
        first, last = (self._midnight(moment) for moment in (begin, end))
        days = range((last - first).days + 3)
        midnights = [first + (day - 1) * _DAY for day in days]
        return [self._span(day) for day in midnights if DAYS[day.weekday()] in self.days]

    def _midnight(self, moment: float) -> datetime:
        return datetime.fromtimestamp(moment, self.zone).replace(
            hour=0, minute=0, second=0, microsecond=0, tzinfo=None
        )

    def _span(self, midnight: datetime) -> tuple[float, float]:
        day_of_end = midnight if self.end > self.start else midnight + _DAY
        start = _earliest(midnight + timedelta(minutes=self.start), self.zone)
        return start, _latest(day_of_end + timedelta(minutes=self.end), self.zone)


@dataclass(frozen=True)
class Event:
    """An entry of a calendar, in epoch seconds."""

    name: str
    start: float
    end: float

    def until(self, moment: float) -> float | None:
        """When it ends, if it is on at ``moment``."""
        return self.end if self.start <= moment < self.end else None

    def spans(self, begin: float, end: float) -> list[tuple[float, float]]:
        """From when to when it is on, if that can reach between these moments."""
        return [(self.start, self.end)] if self.start <= end and self.end > begin else []


def in_force(closed: Sequence[Freeze | Event], moment: float) -> list[tuple[str, float]]:
    """Names of those that are in force at ``moment``, each with the moment of its end."""
    ends = [(each.name, each.until(moment)) for each in closed]
    return [(name, end) for name, end in ends if end is not None]


def ends_by_name(closed: Sequence[Freeze | Event], moment: float) -> dict[str, float]:
    """The same, of several with one name the last to end."""
    return dict(sorted(in_force(closed, moment), key=lambda each: each[1]))


def open_from(closed: Sequence[Freeze | Event], moment: float) -> float | None:
    """When none is in force any more, ``moment`` itself if none is then; None if always one is.

    One may begin where another one ends. Beyond the last event a week shows all there is.
    """
    last = max([moment, *(each.end for each in closed if isinstance(each, Event))])
    while moment < last + 8 * _DAY.total_seconds():
        ends = [end for _, end in in_force(closed, moment)]
        if not ends:
            return moment
        moment = max(ends)
    return None


def closed_spans(
    closed: Sequence[Freeze | Event], begin: float, end: float
) -> list[tuple[float, float]]:
    """From when to when any is in force between two moments, in order; none touches the next."""
    return joined_spans([span for each in closed for span in each.spans(begin, end)], begin, end)


def joined_spans(
    spans: Iterable[tuple[float, float]], begin: float, end: float
) -> list[tuple[float, float]]:
    """From when to when any of these is, between two moments, in order; none touches the next."""
    joined: list[tuple[float, float]] = []
    for start, stop in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        elif stop > begin:
            joined.append((start, stop))
    return [(start, stop) for start, stop in joined if start < end]


def hour_of_week(hour: int) -> int:
    """That of an hour since the epoch, which began on a Thursday."""
    return (hour + 3 * 24) % WEEK_HOURS


def spans_of_hours(hours: Container[int]) -> list[tuple[str, int, int]]:
    """Hours of the week in a row, as a day, the hour of it at which they begin, and at which they
    end; none goes beyond its day."""
    found: list[tuple[str, int, int]] = []
    for hour in (hour for hour in range(WEEK_HOURS) if hour in hours):
        day, start = DAYS[hour // 24], hour % 24
        if found and found[-1][0] == day and found[-1][2] == start:
            start = found.pop()[1]
        found.append((day, start, hour % 24 + 1))
    return found


def days_by_hours(hours: Container[int]) -> dict[tuple[int, int], list[str]]:
    """The same: by when they begin and end, the days."""
    found: dict[tuple[int, int], list[str]] = {}
    for day, *span in spans_of_hours(hours):
        found.setdefault((span[0], span[1]), []).append(day)
    return found


def freezes_beside(name: str, hours: Set[int]) -> tuple[Freeze, ...]:
    """Freezes of that name in all hours of the week but these."""
    return tuple(
        Freeze(name, tuple(days), 60 * start, 60 * end, timezone.utc)
        for (start, end), days in days_by_hours(EVERY_HOUR - hours).items()
    )


def written(closed: Sequence[Freeze | Event]) -> list[dict[str, object]]:
    """As a record keeps them."""
    documents = [dict(vars(each)) for each in closed]
    return [{**each, "zone": str(each["zone"])} if "zone" in each else each for each in documents]


def read_written(documents: Sequence[Mapping[str, Any]]) -> list[Freeze | Event]:
    """What ``written`` made of them."""
    return [_read(**each) for each in documents]


def _read(
    name: str, start: int, end: int, days: Sequence[str] = (), zone: str | None = None
) -> Freeze | Event:
    if zone is None:
        return Event(name, start, end)
    return Freeze(name, tuple(days), start, end, _zone(zone))


def read_zone(fields: Fields, default: str) -> str:
    """The name of a time zone that this system knows."""
    name: str = fields.text("timezone", default)
    try:
        _zone(name)
    except (KeyError, ValueError, OSError):
        raise fields.wrong("timezone", f"{name!r} is no time zone that is known here") from None
    return name


def read_freeze(fields: Fields, zone: str = "UTC") -> Freeze:
    """A mapping of ``days``, ``start``, ``end``, and perhaps ``name`` and ``timezone``."""
    days = fields.texts("days", list(DAYS))
    for index, day in enumerate(days):
        if day not in DAYS:
            raise fields.wrong(f"days[{index}]", f"{day!r} is none of {', '.join(DAYS)}")
    freeze = Freeze(
        name=fields.text("name", "freeze"),
        days=days,
        start=_read_clock(fields, "start", "00:00"),
        end=_read_clock(fields, "end", "24:00"),
        zone=_zone(read_zone(fields, zone)),
    )
    fields.done()
    return freeze


def read_event(fields: Fields, zone: str = "UTC") -> Event:
    """A mapping of ``name``, ``from``, ``to``, perhaps ``timezone``; a day alone is all of it."""
    local = _zone(read_zone(fields, zone))
    start, _ = _read_moment(fields, "from")
    end, whole_day = _read_moment(fields, "to")
    event = Event(
        name=fields.text("name"),
        start=_earliest(start, local),
        end=_latest(end + _DAY if whole_day else end, local),
    )
    if event.end <= event.start:
        raise fields.wrong("to", "is not after from")
    fields.done()
    return event


def _zone(name: str) -> tzinfo:
    """A zone of the system's database, KeyError if it has none; UTC needs none."""
    if name == "UTC":
        return timezone.utc
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def _read_clock(fields: Fields, field: str, default: str) -> int:
    value = fields.raw(field, default)
    if not isinstance(value, str) or not re.fullmatch(_CLOCK, value):
        raise fields.wrong(field, f'{value!r} is no time of day such as "16:00", in quotes')
    hours, minutes = value.split(":")
    return int(hours) * 60 + int(minutes)


def _read_moment(fields: Fields, field: str) -> tuple[datetime, bool]:
    """A local time, and whether only its day was given."""
    text = str(fields.raw(field))
    try:
        if re.fullmatch(_MOMENT, text) and _FIRST_YEAR <= text[:4] <= _LAST_YEAR:
            return datetime.fromisoformat(text), len(text) == len("2026-01-31")
    except ValueError:
        pass
    raise fields.wrong(field, f'{text!r} is no local time such as "2026-01-31 18:00"')


def _earliest(local: datetime, zone: tzinfo) -> float:
    return min(_readings(local, zone))


def _latest(local: datetime, zone: tzinfo) -> float:
    return max(_readings(local, zone))


def _readings(local: datetime, zone: tzinfo) -> list[float]:
    """The moments a local time can mean; it is twice, or not at all, when clocks are changed."""
    return [local.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1)]
