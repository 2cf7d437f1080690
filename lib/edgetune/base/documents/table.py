# SPDX-License-Identifier: Apache-2.0
"""Samples as columns: what a large PoP stores, and what is read of it.

A document of them is ``{"schema": 2, "time", "hosts": [name], "boots": [boot_id], "uptime": column,
"counters": {name: column}, "gauges": {name: column}}``. It holds hosts of one sweep, all of them or
those that had answered; a column has one number for each, as base64 of little-endian doubles, NaN
where it was not read. Nothing here needs numpy, which actions that sample do not load.

The counters of buckets, of which there are many, stand together in ``{"buckets": {histogram:
text}}``: the numbers of those that any host has, as ``0-3,7``, a blank, and base64 of what zlib
makes of their columns one after the other. These are whole numbers of 32 bits, in four parts: the
lowest bytes of all, then the next ones. Earlier versions had a column for each among the counters,
``u4:`` and base64 of whole numbers of 32 bits.
"""

from __future__ import annotations

import math
import re
import sys
import zlib
from array import array
from binascii import a2b_base64, b2a_base64
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, chain, compress, islice
from struct import pack
from typing import Any

from edgetune import SAMPLE_SCHEMA
from edgetune.agent.vocabulary.buckets import BUCKET, bucket_name
from edgetune.base.documents.sample import Sample

Column = Any
"""``array("d")``; mypy of Python 3.9 has no name for it."""

LARGEST = sys.float_info.max
"""JSON has larger ones; no array takes them."""

_NUMBERS = frozenset((int, float))
_WHOLE = "u4:"
_UNREAD = 2**32 - 1
"""What stands for NaN among whole numbers."""
_RANGE = re.compile(r"(0|[1-9]\d{0,3})(?:-([1-9]\d{0,3}))?")


def countable(value: Any) -> bool:
    """Whether a stored value is a number that a host can count: damaged samples hold others."""
    return type(value) in _NUMBERS and 0 <= value <= LARGEST


class SampleTable:
    """Samples, a row each, in the order in which they were added.

    ``host`` and ``boot`` number ``hosts`` and ``boots``; ``time`` and ``uptime`` are in seconds. A
    number that was not read is NaN. One that was damaged in the store may be any (see
    ``countable``). Readings are decoded whenever they are asked for: most never are.
    """

    def __init__(self, rows: Sequence[Sample] = ()) -> None:
        self._hosts, self._boots = _no_numbers(), _no_numbers()
        self.host, self.boot = array("i"), array("i")
        self.time, self.uptime = array("d"), array("d")
        self._parts: list[_Readings] = []
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

    def gauges_of(self, rows: Iterable[int]) -> list[dict[str, float]]:
        """The gauges that were read of each of some samples, in the order of ``rows``."""
        ends = [*accumulate(part.size for part in self._parts)]
        decoded: dict[int, dict[str, Column]] = {}
        gauges = []
        for row in rows:
            number = bisect_right(ends, row)
            part = self._parts[number]
            if number not in decoded:
                decoded[number] = part.columns("gauges")
            gauges.append(_read_at(decoded[number], row - ends[number] + part.size))
        return gauges

    def latest_gauges(self) -> dict[str, dict[str, float]]:
        """By host, the gauges of its last sample."""
        last = dict(zip(self.host, range(len(self))))
        hosts = self.hosts
        return dict(zip((hosts[host] for host in last), self.gauges_of(last.values())))

    def rows(self) -> Iterator[Sample]:
        """The samples, one after the other."""
        hosts, boots = self.hosts, self.boots
        kinds = ("counters", "gauges")
        readings = chain.from_iterable(zip(*map(part.rows, kinds)) for part in self._parts)
        columns = zip(self.host, self.time, self.boot, self.uptime, readings)
        for host, time, boot, uptime, read in columns:
            yield Sample(hosts[host], time, boots[boot], uptime, *read)

    def between(self, start: float, end: float) -> SampleTable:
        """The samples with ``start`` <= time <= ``end``."""
        return self.where([start <= time <= end for time in self.time])

    def where(self, inside: Sequence[bool]) -> SampleTable:
        """The samples whose row is ``inside``."""
        chosen = SampleTable()
        chosen._hosts, chosen._boots = self._hosts, self._boots
        chosen.host, chosen.boot = (array("i", compress(c, inside)) for c in (self.host, self.boot))
        chosen.time, chosen.uptime = (
            array("d", compress(column, inside)) for column in (self.time, self.uptime)
        )
        of_part = iter(inside)
        chosen._parts = [part.where([*islice(of_part, part.size)]) for part in self._parts]
        return chosen

    def add_rows(self, rows: Sequence[Sample]) -> None:
        """Samples, in their order."""
        readings = {
            (kind, name): _amounts([each.get(name) for each in mappings])
            for kind, mappings in (
                ("counters", [row.counters for row in rows]),
                ("gauges", [row.gauges for row in rows]),
            )
            for name in dict.fromkeys(name for each in mappings for name in each)
        }
        hosts, boots = [row.host for row in rows], [row.boot_id for row in rows]
        time, uptime = _amounts([row.time for row in rows]), _amounts([row.uptime for row in rows])
        self._add(hosts, boots, time, uptime, [_Readings(len(rows), readings)])

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
        readings: dict[tuple[str, str], Any] = {
            (kind, name): text
            for kind in ("counters", "gauges")
            for name, text in _mapping(kept.get(kind)).items()
        }
        for histogram, text in _mapping(kept.get("buckets")).items():
            packed = _Packed(text, len(hosts))
            for number in packed.numbers:
                readings["counters", bucket_name(histogram, number)] = packed, number
        times = array("d", [float(time)]) * len(hosts)
        self._add(hosts, boots, times, uptime, [_Readings(len(hosts), readings)])

    def add_columns(
        self,
        hosts: Sequence[str],
        boots: Sequence[str],
        time: Column,
        uptime: Column,
        counters: Mapping[str, Column],
        gauges: Mapping[str, Column],
    ) -> None:
        """Samples as columns, one number in each for each row; NaN where it was not read."""
        readings = {("counters", name): column for name, column in counters.items()}
        readings.update((("gauges", name), column) for name, column in gauges.items())
        self._add(hosts, boots, time, uptime, [_Readings(len(hosts), readings)])

    def counter_names(self) -> list[str]:
        """Names of the counters that any sample may have."""
        return [name for kind, name in self._keys() if kind == "counters"]

    def gauge_names(self) -> list[str]:
        """Names of the gauges that any sample may have."""
        return [name for kind, name in self._keys() if kind == "gauges"]

    def at(self, time: Column, gauges: Mapping[str, Column]) -> SampleTable:
        """The same samples at these times, which are known, oldest first; with these gauges, in
        place of those of the same names."""
        readings = {key: self._column(*key) for key in self._keys()}
        readings.update((("gauges", name), column) for name, column in gauges.items())
        order = sorted(range(len(self)), key=time.__getitem__)
        moved = SampleTable()
        moved._hosts, moved._boots = self._hosts, self._boots
        moved.host, moved.boot = (_ordered(c, order) for c in (self.host, self.boot))
        moved.time, moved.uptime = (_ordered(c, order) for c in (time, self.uptime))
        ordered = {key: _ordered(column, order) for key, column in readings.items()}
        moved._parts = [_Readings(len(self), ordered)]
        return moved

    def add_table(self, other: SampleTable) -> None:
        """Add all rows of another table."""
        hosts, boots = other.hosts, other.boots
        self._add(
            [hosts[number] for number in other.host],
            [boots[number] for number in other.boot],
            other.time,
            other.uptime,
            other._parts,
        )

    def document(self) -> dict[str, object]:
        """The stored form; of samples of one time."""
        hosts, boots = self.hosts, self.boots
        kinds: dict[str, dict[str, str]] = {"counters": {}, "gauges": {}}
        buckets: dict[str, dict[int, Column]] = {}
        for kind, name in self._keys():
            column = self._column(kind, name)
            of, whole = bucket_in(name), _whole(column) if BUCKET in name else None
            if kind == "counters" and of and whole is not None:
                buckets.setdefault(of[0], {})[of[1]] = whole
            else:
                kinds[kind][name] = _packed(column)
        packed = {name: _packed_buckets(columns) for name, columns in buckets.items()}
        return {
            "schema": SAMPLE_SCHEMA,
            "time": self.time[0],
            "hosts": [hosts[number] for number in self.host],
            "boots": [boots[number] for number in self.boot],
            "uptime": _packed(self.uptime),
            **kinds,
            **({"buckets": packed} if packed else {}),
        }

    def _add(
        self,
        hosts: Sequence[str],
        boots: Sequence[str],
        time: Column,
        uptime: Column,
        parts: Sequence[_Readings],
    ) -> None:
        _extend(self.host, hosts, self._hosts)
        _extend(self.boot, boots, self._boots)
        self.time.extend(time)
        self.uptime.extend(uptime)
        self._parts.extend(parts)

    def _keys(self) -> list[tuple[str, str]]:
        return [*dict.fromkeys(key for part in self._parts for key in part.columns_of)]

    def _column(self, kind: str, name: str) -> Column:
        column = array("d")
        for part in self._parts:
            column.extend(part.column((kind, name)))
        return column


class _Readings:
    """The counters and gauges of some samples, by kind and name; a text is a stored column, and a
    bucket is one of those that are ``_Packed``."""

    def __init__(self, size: int, columns_of: Mapping[tuple[str, str], Any]) -> None:
        self.size = size
        self.columns_of = columns_of

    def column(self, key: tuple[str, str]) -> Column:
        """One number for each sample."""
        kept = self.columns_of.get(key)
        if isinstance(kept, tuple):
            packed, number = kept
            column = packed.column(number)
        else:
            column = kept if isinstance(kept, array) else _unpacked(kept, self.size)
        return array("d", [math.nan]) * self.size if column is None else column

    def columns(self, kind: str) -> dict[str, Column]:
        """The columns of a kind, by name."""
        return {key[1]: self.column(key) for key in self.columns_of if key[0] == kind}

    def rows(self, kind: str) -> list[dict[str, float]]:
        """Of each sample, the readings of a kind that were read."""
        columns = self.columns(kind)
        return [_read_at(columns, row) for row in range(self.size)]

    def where(self, inside: Sequence[bool]) -> _Readings:
        """The readings of the samples that are ``inside``."""
        if all(inside):
            return self
        chosen = {key: array("d", compress(self.column(key), inside)) for key in self.columns_of}
        return _Readings(sum(inside), chosen if any(inside) else {})


def _ordered(column: Column, order: Sequence[int]) -> Column:
    return array(column.typecode, map(column.__getitem__, order))


def _read_at(columns: Mapping[str, Column], row: int) -> dict[str, float]:
    return {name: column[row] for name, column in columns.items() if not math.isnan(column[row])}


def _no_numbers() -> dict[str, int]:
    """The numbers of names; a new name gets the next one."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    return numbers


def _extend(column: Column, names: Sequence[str], numbers: dict[str, int]) -> None:
    # An array takes integers one by one much more slowly.
    column.frombytes(pack(f"{len(names)}i", *map(numbers.__getitem__, names)))


def _amounts(values: Sequence[Any]) -> Column:
    """A column of them; NaN for what is no number."""
    # An integer may be larger than any float.
    with suppress(OverflowError):
        if _NUMBERS.issuperset(map(type, values)):
            return array("d", values)
    return array("d", [value if countable(value) else math.nan for value in values])


def _packed(column: Column) -> str:
    return b2a_base64(_little_endian(column).tobytes(), newline=False).decode("ascii")


def _whole(column: Column) -> Column | None:
    """The column as whole numbers of 32 bits; None where it has others."""
    try:
        numbers = array("I", [_UNREAD if math.isnan(number) else int(number) for number in column])
    except (OverflowError, ValueError):
        return None
    as_before = (math.isnan(one) or one == other != _UNREAD for one, other in zip(column, numbers))
    return numbers if all(as_before) else None


def bucket_in(name: str) -> tuple[str, int] | None:
    """The histogram of a counter, and the number of its bucket; None of what is no bucket."""
    histogram, _, number = name.rpartition(BUCKET)
    known = re.fullmatch(_RANGE, number)
    return (histogram, int(number)) if histogram and known and not known[2] else None


def _packed_buckets(columns: Mapping[int, Column]) -> str:
    numbers = sorted(columns)
    raw = b"".join(_little_endian(columns[number]).tobytes() for number in numbers)
    data = zlib.compress(b"".join(raw[byte::4] for byte in range(4)))
    return f"{_ranges(numbers)} {b2a_base64(data, newline=False).decode('ascii')}"


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers that grow, as ``0-3,7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


class _Packed:
    """Buckets of one histogram as they are stored; ``numbers`` are none where that is damaged.

    They are unpacked all at once, when the first of them is asked for.
    """

    def __init__(self, text: Any, size: int) -> None:
        numbers, _, self._text = text.partition(" ") if isinstance(text, str) else ("", "", "")
        self._size = size
        self._columns: dict[int, Column] | None = None
        self.numbers = self._read_numbers(numbers)

    def _read_numbers(self, text: str) -> list[int]:
        numbers: list[int] = []
        for part in text.split(","):
            match = _RANGE.fullmatch(part)
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
            if last < first or (numbers and first <= numbers[-1]):
                return []
            numbers += range(first, last + 1)
        return numbers

    def column(self, number: int) -> Column | None:
        """One number for each sample; None where they cannot be unpacked."""
        if self._columns is None:
            self._columns, self._text = self._unpack(), ""
        packed = self._columns.get(number)
        return packed and array("d", [math.nan if one == _UNREAD else one for one in packed])

    def _unpack(self) -> dict[int, Column]:
        many = len(self.numbers) * self._size
        packed = zlib.decompressobj()
        if not many:
            return {}
        try:
            raw = packed.decompress(a2b_base64(self._text), 4 * many + 1)
        except (ValueError, zlib.error):
            return {}
        if len(raw) != 4 * many:
            return {}
        every = bytearray(4 * many)
        for byte in range(4):
            every[byte::4] = raw[byte * many : (byte + 1) * many]
        numbers = array("I", bytes(every))
        whole = _little_endian(numbers)
        size = self._size
        starts = range(0, many, size)
        return {n: whole[at : at + size] for n, at in zip(self.numbers, starts)}


def _unpacked(text: Any, size: int) -> Column | None:
    """None for what is no column of so many numbers."""
    is_whole = isinstance(text, str) and text.startswith(_WHOLE)
    column = array("I" if is_whole else "d")
    try:
        column.frombytes(a2b_base64(text[len(_WHOLE) :] if is_whole else text))
    except (TypeError, ValueError):
        return None
    if len(column) != size:
        return None
    numbers = _little_endian(column)
    if not is_whole:
        return numbers
    return array("d", [math.nan if number == _UNREAD else number for number in numbers])


def _little_endian(column: Column) -> Column:
    if sys.byteorder == "little":
        return column
    swapped = array(column.typecode, column)
    swapped.byteswap()
    return swapped


def _are_texts(value: Any) -> bool:
    return type(value) is list and {str}.issuperset(map(type, value))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if type(value) is dict else {}
