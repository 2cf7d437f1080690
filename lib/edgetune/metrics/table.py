# SPDX-License-Identifier: Apache-2.0
"""Samples as columns: what a large PoP stores, and what is read of it.

A document of them is ``{"schema": 2, "time", "hosts": [name], "boots": [boot_id], "uptime": column,
"counters": {name: column}, "gauges": {name: column}}``. It holds hosts of one sweep, all of them or
those that had answered; a column has one number for each, as base64 of little-endian doubles, NaN
where it was not read. Nothing here needs numpy, which actions that sample do not load.
"""

from __future__ import annotations

import math
import sys
from array import array
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import compress
from typing import Any

from edgetune import SAMPLE_SCHEMA

Sample = Mapping[str, Any]
Column = Any
"""``array("d")``; mypy of Python 3.9 has no name for it."""

LARGEST = sys.float_info.max
"""JSON has larger ones; no array takes them."""

_NUMBERS = frozenset((int, float))


def countable(value: Any) -> bool:
    """Whether a stored value is a number that a host can count: damaged samples hold others."""
    return type(value) in _NUMBERS and 0 <= value <= LARGEST


class SampleTable:
    """Samples, a row each, in the order in which they were added.

    ``host`` and ``boot`` number ``hosts`` and ``boots``; ``time`` and ``uptime`` are in seconds. A
    number that was not read is NaN. One that was damaged in the store may be any (see
    ``countable``).
    """

    def __init__(self, rows: Sequence[Sample] = ()) -> None:
        self._hosts: dict[str, int] = {}
        self._boots: dict[str, int] = {}
        self.host, self.boot = array("i"), array("i")
        self.time, self.uptime = array("d"), array("d")
        self._readings: dict[tuple[str, str], Column] = {}
        if rows:
            self.add_rows(rows)

    def __len__(self) -> int:
        return len(self.host)

    @property
    def hosts(self) -> list[str]:
        """Their names, by number."""
        return [*self._hosts]

    @property
    def boots(self) -> list[str]:
        """The ids of boots, by number."""
        return [*self._boots]

    def counter(self, name: str) -> Column:
        """One number for each row."""
        return self._column("counters", name)

    def gauge(self, name: str) -> Column:
        """One number for each row."""
        return self._column("gauges", name)

    def gauges_of(self, row: int) -> dict[str, float]:
        """Those of one sample that were read."""
        return self._readings_of("gauges", row)

    def latest_gauges(self) -> dict[str, dict[str, float]]:
        """Those of the last sample of each host."""
        last = dict(zip(self.host, range(len(self))))
        hosts = self.hosts
        return {hosts[host]: self.gauges_of(row) for host, row in last.items()}

    def rows(self) -> Iterator[Sample]:
        """Each sample alone, as ``samples.make_sample`` makes it."""
        hosts, boots = self.hosts, self.boots
        for row, (host, boot) in enumerate(zip(self.host, self.boot)):
            yield {
                "host": hosts[host],
                "time": self.time[row],
                "boot_id": boots[boot],
                "uptime": self.uptime[row],
                "counters": self._readings_of("counters", row),
                "gauges": self._readings_of("gauges", row),
            }

    def between(self, start: float, end: float) -> SampleTable:
        """The samples with ``start`` <= time <= ``end``."""
        inside = [start <= time <= end for time in self.time]
        found = SampleTable()
        found._hosts, found._boots = self._hosts, self._boots
        found.host, found.boot = (array("i", compress(c, inside)) for c in (self.host, self.boot))
        found.time, found.uptime = (
            array("d", compress(column, inside)) for column in (self.time, self.uptime)
        )
        found._readings = {
            key: array("d", compress(column, inside)) for key, column in self._readings.items()
        }
        return found

    def add_rows(self, rows: Sequence[Sample]) -> None:
        """Samples as ``samples.make_sample`` makes them."""
        readings = {
            (kind, name): _amounts([row[kind].get(name) for row in rows])
            for kind in ("counters", "gauges")
            for name in dict.fromkeys(name for row in rows for name in row[kind])
        }
        hosts, boots = ([row[key] for row in rows] for key in ("host", "boot_id"))
        time, uptime = (_amounts([row[key] for row in rows]) for key in ("time", "uptime"))
        self._add(hosts, boots, time, uptime, readings)

    def add_document(self, value: Any) -> None:
        """Those of a stored document; a damaged column is as one that was not read.

        Nothing is added of what is no such document, or does not say of what hosts, boots and times
        its columns are.
        """
        kept = _mapping(value)
        hosts, boots, time = (kept.get(key, 0) for key in ("hosts", "boots", "time"))
        if kept.get("schema") != SAMPLE_SCHEMA or not (_are_texts(hosts) and _are_texts(boots)):
            return
        uptime = _unpacked(kept.get("uptime"), len(hosts))
        if uptime is None or len(hosts) != len(boots) or not countable(time):
            return
        readings = {
            (kind, name): column
            for kind in ("counters", "gauges")
            for name, text in _mapping(kept.get(kind)).items()
            if (column := _unpacked(text, len(hosts))) is not None
        }
        self._add(hosts, boots, array("d", [float(time)]) * len(hosts), uptime, readings)

    def add_table(self, other: SampleTable) -> None:
        """All rows of another one."""
        hosts, boots = other.hosts, other.boots
        self._add(
            [hosts[number] for number in other.host],
            [boots[number] for number in other.boot],
            other.time,
            other.uptime,
            other._readings,
        )

    def document(self) -> dict[str, Any]:
        """As it is stored; of samples of one time."""
        hosts, boots = self.hosts, self.boots
        kinds: dict[str, dict[str, str]] = {"counters": {}, "gauges": {}}
        for (kind, name), column in self._readings.items():
            kinds[kind][name] = _packed(column)
        return {
            "schema": SAMPLE_SCHEMA,
            "time": self.time[0],
            "hosts": [hosts[number] for number in self.host],
            "boots": [boots[number] for number in self.boot],
            "uptime": _packed(self.uptime),
            **kinds,
        }

    def _add(
        self,
        hosts: Sequence[str],
        boots: Sequence[str],
        time: Column,
        uptime: Column,
        readings: Mapping[tuple[str, str], Column],
    ) -> None:
        for key in readings.keys() - self._readings.keys():
            self._readings[key] = _unread(len(self))
        self.host.extend(_numbered(hosts, self._hosts))
        self.boot.extend(_numbered(boots, self._boots))
        self.time.extend(time)
        self.uptime.extend(uptime)
        for key, column in self._readings.items():
            column.extend(readings[key] if key in readings else _unread(len(hosts)))

    def _column(self, kind: str, name: str) -> Column:
        found = self._readings.get((kind, name))
        return _unread(len(self)) if found is None else found

    def _readings_of(self, kind: str, row: int) -> dict[str, float]:
        own = {name: column[row] for (of, name), column in self._readings.items() if of == kind}
        return {name: value for name, value in own.items() if not math.isnan(value)}


def _numbered(names: Sequence[str], numbers: dict[str, int]) -> Iterable[int]:
    """Their numbers; a new name gets the next one."""
    for name in names:
        if name not in numbers:
            numbers[name] = len(numbers)
    return map(numbers.__getitem__, names)


def _unread(size: int) -> Column:
    return array("d", [math.nan]) * size


def _amounts(values: Sequence[Any]) -> Column:
    """A column of them; NaN for what is no number."""
    # An integer may be larger than any float.
    with suppress(OverflowError):
        if _NUMBERS.issuperset(map(type, values)):
            return array("d", values)
    return array("d", [value if countable(value) else math.nan for value in values])


def _packed(column: Column) -> str:
    return b2a_base64(_little_endian(column).tobytes(), newline=False).decode("ascii")


def _unpacked(text: Any, size: int) -> Column | None:
    """None for what is no column of so many numbers."""
    column = array("d")
    try:
        column.frombytes(a2b_base64(text))
    except (TypeError, ValueError):
        return None
    return _little_endian(column) if len(column) == size else None


def _little_endian(column: Column) -> Column:
    if sys.byteorder == "little":
        return column
    swapped = array("d", column)
    swapped.byteswap()
    return swapped


def _are_texts(value: Any) -> bool:
    return type(value) is list and {str}.issuperset(map(type, value))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if type(value) is dict else {}
