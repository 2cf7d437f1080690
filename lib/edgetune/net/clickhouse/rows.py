# SPDX-License-Identifier: Apache-2.0
"""Samples of the rows of a site's table, each checked: others wrote them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from edgetune.base.documents.sample import Sample, boot_of, is_same_boot
from edgetune.base.documents.table import countable
from edgetune.net.clickhouse.table import Rows

MOST_AHEAD = 10.0
"""By how many seconds the time of a row may be ahead of the action runner's clock."""

_LONGEST_BOOT = 100
_OWN = ("host", "time", "boot", "uptime")

Row = Sequence[Any]


class Reader:
    """Reads the answers to one question, in their order; ``now`` is the action runner's clock.

    Readings that are not among ``counters`` are gauges. ``odd`` says of hosts what is wrong with
    the first row of theirs that is no sample.
    """

    def __init__(self, now: float, counters: Collection[str]) -> None:
        self._now, self._counters = now, counters
        self._last: dict[str, Row] = {}
        self._boots: dict[str, str] = {}
        self.odd: dict[str, str] = {}

    def samples(self, found: Rows) -> Iterator[Sample]:
        """Those of rows that make sense; two rows that are the same are one."""
        places = {name: place for place, name in enumerate(found.readings, len(_OWN))}
        gauges = {name: place for name, place in places.items() if name not in self._counters}
        counters = {name: place for name, place in places.items() if name in self._counters}
        for row in found.rows:
            host, time = found.hosts[row[0]], row[1] / 1e6
            last = self._last.get(host)
            problem = self._problem(row, found) or _difference(row, last, found)
            if problem:
                self.odd.setdefault(host, f"its row of {_clock(time)}: {problem}")
            elif row != last:
                boot = self._boot(host, row, found.has_boot_time)
                yield Sample(host, time, boot, row[3], _known(row, counters), _known(row, gauges))
            self._last[host] = row

    def _problem(self, row: Row, found: Rows) -> str:
        ahead, boot = row[1] / 1e6 - self._now, row[2]
        if ahead > MOST_AHEAD:
            return f"it is {ahead:.0f} s in the future, so a clock is wrong"
        if type(boot) is not str or not 0 < len(boot) <= _LONGEST_BOOT or not boot.isprintable():
            return "no boot"
        for name, value in zip(("uptime", *found.readings), row[3:]):
            if not countable(value) and (value is not None or name == "uptime"):
                return f"{name} is {value!r}"
        return ""

    def _boot(self, host: str, row: Row, has_boot_time: bool) -> str:
        """The time of a boot is told otherwise when a clock is set: the first one stays."""
        told = boot_of("", row[1] / 1e6 - row[3]) if has_boot_time else row[2]
        before = self._boots.get(host)
        if before is None or not is_same_boot(before, told):
            self._boots[host] = before = told
        return before


def _difference(row: Row, last: Row | None, found: Rows) -> str:
    """What two rows of one host and time do not agree on."""
    if last is None or row[1] != last[1] or row == last:
        return ""
    names = (*_OWN, *found.readings)
    name, one, other = next(own for own in zip(names, last, row) if own[1] != own[2])
    return f"there are two, with {name} {one!r} and {other!r}"


def _known(row: Row, places: Mapping[str, int]) -> dict[str, float]:
    return {name: row[place] for name, place in places.items() if row[place] is not None}


def _clock(time: float) -> str:
    return datetime.fromtimestamp(time, timezone.utc).isoformat(timespec="milliseconds")
