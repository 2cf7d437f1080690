# SPDX-License-Identifier: Apache-2.0
"""How much traffic a PoP carries, hour by hour of the last weeks, and how much it can carry.

edgetune.load.POP

Loads are packets received per second. An hour of the week counts from Monday 00:00 UTC.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from statistics import median_high

from edgetune import PACK, RECORD_SCHEMA
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import Number, check_is, decoded
from edgetune.base.documents.schema import read_versioned
from edgetune.base.durations import HOUR
from edgetune.base.freezes import WEEK_HOURS, hour_of_week

WEEKS = 5
"""How many are kept: of five, two surges move no median."""
MOST_HOURS = WEEKS * WEEK_HOURS
_LATEST = 10**7
_LEAST_CAPACITY = 1e-3


@dataclass(frozen=True)
class LoadCurve:
    """The mean ``loads`` of a PoP of each hour from ``first`` on (hours since the epoch), None
    where too few hosts were measured.

    ``capacity`` is the load at which one of its hosts reached a limit, as was ``measured`` then
    (epoch seconds); None where that is not known.
    """

    first: int
    loads: list[Number | None] = field(default_factory=list)
    capacity: Number | None = None
    measured: float = 0.0

    @property
    def until(self) -> int:
        """The hour after the last one."""
        return self.first + len(self.loads)

    @property
    def by_hour(self) -> dict[int, float]:
        """The median of the weeks by hour of the week, of an even number the larger one; hours that
        were never measured are not in it."""
        seen: dict[int, list[float]] = defaultdict(list)
        for hour, load in enumerate(self.loads, self.first):
            if load is not None:
                seen[hour_of_week(hour)].append(load)
        return {hour: median_high(own) for hour, own in seen.items()}

    def at(self, moment: float) -> float | None:
        """The load of the hour of a moment (epoch seconds)."""
        number = int(moment // HOUR) - self.first
        return self.loads[number] if 0 <= number < len(self.loads) else None

    def over(self, start: int, end: int, found: Mapping[int, float]) -> LoadCurve:
        """With the hours from ``start`` until before ``end`` as they were ``found``, which begin
        where it ends, or end where it begins; without those that are too old."""
        more = [round(found[hour], 1) if hour in found else None for hour in range(start, end)]
        loads = [*self.loads, *more] if start >= self.until else [*more, *self.loads]
        old = max(0, len(loads) - MOST_HOURS)
        return replace(self, first=min(start, self.first) + old, loads=loads[old:])

    def document(self) -> str:
        """As it is stored."""
        return json.dumps({"schema": RECORD_SCHEMA, **asdict(self)})


def load_key(pop: str) -> str:
    """The key of a PoP's; without a PoP what the keys of all begin with."""
    return f"{PACK}.load.{pop}"


def read_load(pop: str, text: str) -> LoadCurve:
    """A stored one; DamagedError if it is none, RefusedError if a later version wrote it."""
    key = load_key(pop)
    found = decoded(key, LoadCurve, read_versioned(key, text))
    check_is(key, "first", 0 <= found.first <= _LATEST, "is no hour")
    check_is(key, "loads", len(found.loads) <= MOST_HOURS, "are too many")
    known = [load for load in found.loads if load is not None]
    check_is(key, "loads", min(known, default=0.0) >= 0, "are less than nothing")
    least = found.capacity is None or found.capacity >= _LEAST_CAPACITY
    check_is(key, "capacity", least, "is next to nothing")
    return found
