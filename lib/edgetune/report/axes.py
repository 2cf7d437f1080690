# SPDX-License-Identifier: Apache-2.0
"""Axes of pictures: where a value stands, and which values are written beside it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from edgetune.base.dataclass import dataclass

_SECONDS = (1, 2, 5, 10, 15, 30)
_CLOCK_STEPS = (
    *_SECONDS,
    *(60 * each for each in _SECONDS),
    *(3600 * each for each in (1, 2, 3, 6, 12, 24, 48, 96, 168, 336)),
)
_FINE = ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
_NARROW = 4.0


@dataclass(frozen=True)
class Axis:
    """Values from ``low`` to ``high`` over ``length`` pixels from ``start``; a negative length
    runs upwards. What lies outside is put on the end it is beyond. A ``log`` axis begins above 0.
    """

    low: float
    high: float
    start: float
    length: float
    log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value."""
        low, high = self._measure(self.low), self._measure(self.high)
        share = (self._measure(value) - low) / (high - low)
        return round(self.start + self.length * min(max(share, 0.0), 1.0), 1)

    @property
    def end(self) -> float:
        """The pixel of its last value."""
        return self.start + self.length

    def ticks(self, most: int = 6) -> list[float]:
        """At most so many round values."""
        if self.log and self.high / self.low > _NARROW:
            return _powers(self.low, self.high, most)
        return _round(self.low, self.high, most)

    def _measure(self, value: float) -> float:
        if not self.log:
            return value
        return math.log(value) if value > 0 else -math.inf


def around(values: Sequence[float], start: float, length: float) -> Axis:
    """An axis with room for all values and 1; from 0 on where it would come near that."""
    low, high = min([1.0, *values]), max([1.0, *values])
    room = 0.08 * (high - low) or 0.5
    return Axis(0.0 if low < 0.5 * high else low - room, high + room, start, length)


def from_zero(values: Sequence[float], start: float, length: float) -> Axis:
    """An axis from 0 with room for all values."""
    return Axis(0.0, 1.08 * max(values) or 1.0, start, length)


def of_ratios(values: Sequence[float], start: float, length: float) -> Axis:
    """A logarithmic axis with room for all positive values, and at least from 0.8 to 1.25."""
    known = [value for value in values if 0 < value < math.inf]
    low, high = min([0.8, *known]), max([1.25, *known])
    room = (high / low) ** 0.06
    return Axis(low / room, high * room, start, length, log=True)


def clock_ticks(start: float, end: float, most: int = 8) -> list[tuple[float, str]]:
    """Round times of the day, UTC, with what is written there."""
    step = next((s for s in _CLOCK_STEPS if (end - start) / s <= most), _CLOCK_STEPS[-1])
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%b %d"
    if step < 86400 < end - start:
        form = "%b %d %H:%M"
    first = math.ceil(start / step)
    times = [number * step for number in range(first, math.floor(end / step) + 1)]
    return [(at, time.strftime(form, time.gmtime(at))) for at in times]


def _round(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{step * number:.12g}") for number in range(first, last + 1)]


def _powers(low: float, high: float, most: int) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for heads in _FINE:
        found = [float(f"{head}e{power}") for power in decades for head in heads]
        found = [value for value in found if low <= value <= high]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]
