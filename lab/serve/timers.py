# SPDX-License-Identifier: Apache-2.0
"""When a timer fires next, by the rules of APScheduler, which StackStorm's timers are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, time, timedelta, timezone, tzinfo
from math import floor
from typing import Any, Protocol
from zoneinfo import ZoneInfo

__all__ = ["CRON_TIMER", "INTERVAL_TIMER", "Cron", "Interval", "Sooner", "Timer", "timer"]

INTERVAL_TIMER = "core.st2.IntervalTimer"
CRON_TIMER = "core.st2.CronTimer"

_UNITS = ("weeks", "days", "hours", "minutes", "seconds")
_WEEKDAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]

# Name to smallest and largest value, from the most to the least significant field.
_FIELDS = {
    "year": (1970, 9999),
    "month": (1, 12),
    "day": (1, 31),
    "week": (1, 53),
    "day_of_week": (0, 6),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
}
_WITHOUT_SMALLEST = ("year", "week", "day_of_week")
_PART = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/([1-9]\d*))?")
_HORIZON = timedelta(days=366 * 41)  # the longest wait for a 29 February on a given weekday


class Timer(Protocol):
    """Something that fires now and then."""

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time after a moment at which it fires, in UTC; None if it never does."""


@dataclass(frozen=True)
class Interval:
    """Fires every `step`, for the first time one step after `start`."""

    step: timedelta
    start: datetime

    def next_after(self, moment: datetime) -> datetime:
        """A moment of its grid, whatever was missed."""
        return self.start + (floor((moment - self.start) / self.step) + 1) * self.step


@dataclass(frozen=True)
class Sooner:
    """Fires whenever one of two timers does."""

    own: Timer
    other: Interval

    def next_after(self, moment: datetime) -> datetime:
        """Whichever is next."""
        own, other = self.own.next_after(moment), self.other.next_after(moment)
        return other if own is None else min(own, other)


@dataclass(frozen=True)
class Cron:
    """Fires when the wall clock of its zone (None: the machine's) fits all fields.

    When clocks are changed, a time that does not exist is left out and one that exists twice fires
    twice. Fields after the last one given are at their smallest value, those before it at any.
    """

    fields: dict[str, frozenset[int]]
    zone: tzinfo | None

    def next_after(self, moment: datetime) -> datetime | None:
        """Goes from day to day, hour to hour, minute to minute and second to second."""
        instant = moment.astimezone(timezone.utc).replace(microsecond=0) + timedelta(seconds=1)
        horizon = instant + _HORIZON
        while instant < horizon:
            local = instant.astimezone(self.zone)
            if not self._is_day(local):
                midnight = datetime.combine(local.date() + timedelta(days=1), time())
                instant = midnight.replace(tzinfo=self.zone).astimezone(timezone.utc)
            elif local.hour not in self.fields["hour"]:
                instant += timedelta(seconds=3600 - local.minute * 60 - local.second)
            elif local.minute not in self.fields["minute"]:
                instant += timedelta(seconds=60 - local.second)
            elif local.second not in self.fields["second"]:
                instant += timedelta(seconds=1)
            else:
                return instant
        return None

    def _is_day(self, local: datetime) -> bool:
        has = {
            "year": local.year,
            "month": local.month,
            "day": local.day,
            "week": local.isocalendar()[1],
            "day_of_week": local.weekday(),
        }
        return all(value in self.fields[name] for name, value in has.items())


def timer(kind: str, parameters: dict[str, Any], start: datetime) -> Timer:
    """The timer of a trigger with these parameters; raises ValueError that names the field."""
    given = {name: value for name, value in parameters.items() if name != "timezone"}
    zone = _zone(parameters.get("timezone"))
    if kind == CRON_TIMER:
        return Cron(_cron_fields(given), zone)
    unit, delta = given.pop("unit", None), given.pop("delta", None)
    if unit not in _UNITS:
        raise ValueError(f"unit: must be one of {', '.join(_UNITS)}")
    if type(delta) is not int or delta < 1:
        raise ValueError("delta: must be a whole number, at least 1")
    if given:
        raise ValueError(f"{min(given)}: is no parameter of {kind}")
    return Interval(timedelta(**{unit: delta}), start)


def _zone(name: Any) -> tzinfo | None:
    try:
        return None if name is None else ZoneInfo(name)
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise ValueError(f'timezone: there is no zone "{name}"') from error


def _cron_fields(given: dict[str, Any]) -> dict[str, frozenset[int]]:
    for name in given:
        if name not in _FIELDS:
            raise ValueError(f"{name}: is no parameter of {CRON_TIMER}")
    fields, left = {}, set(given)
    for name, (smallest, _) in _FIELDS.items():
        default = smallest if given and not left and name not in _WITHOUT_SMALLEST else "*"
        fields[name] = frozenset(_values(name, str(given.get(name, default)).lower()))
        left.discard(name)
    return fields


def _values(field: str, text: str) -> Iterator[int]:
    """`*`, `5`, `1-5`, each with a step (`*/15`), names of months and weekdays, and lists."""
    smallest, largest = _FIELDS[field]
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if not found:
            raise ValueError(f'{field}: "{part}" is not understood by the local runner')
        first, last, step = found.groups()
        low = smallest if first is None else _number(field, first)
        high = largest if first is None or (step and not last) else _number(field, last or first)
        if not smallest <= low <= high <= largest:
            raise ValueError(f'{field}: "{part}" is not within {smallest} to {largest}')
        yield from range(low, high + 1, int(step or 1))


def _number(field: str, word: str) -> int:
    names = {"day_of_week": _WEEKDAYS, "month": ["", *_MONTHS]}.get(field, [])
    if word in names:
        return names.index(word)
    if not word.isdecimal():
        raise ValueError(f'{field}: "{word}" is not understood by the local runner')
    return int(word)
