# SPDX-License-Identifier: Apache-2.0
"""In which hours of the week how many hosts of a PoP may be out, by its load. Pure.

With ``k`` of ``n`` hosts out, the others have to carry all of a load within ``max_load`` of what
they can carry: ``load / (n - k) <= max_load * capacity``. The capacity of a host is the load at
which one reached a limit; where none was measured it is a host's part of the PoP's busiest hour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.load import LoadCurve
from edgetune.base.durations import HOUR
from edgetune.base.errors import RefusedError
from edgetune.base.freezes import DAYS, EVERY_HOUR, WEEK_HOURS, days_by_hours
from edgetune.base.names import few, several
from edgetune.base.numbers import percent


@dataclass(frozen=True)
class Room:
    """How many ``hosts`` of a PoP may be out in these ``hours`` of the week; 0 for as many as its
    floor permits. ``why`` says so in words, "" where no load is asked for."""

    hosts: int = 0
    hours: frozenset[int] = EVERY_HOUR
    why: str = ""


def room_of(
    pop: str, curve: LoadCurve | None, hosts: int, most: int, at: float, lasts: float
) -> Room:
    """The room of a PoP of so many ``hosts`` of which ``most`` would be out at once, ``at`` a share
    of its capacity; a batch ``lasts`` so many seconds.

    As many are out as get most done in a week. Hours that were never measured are left out. Where
    none is known, one host is out at a time, whenever that is. RefusedError where none has room.
    """
    loads = curve.by_hour if curve else {}
    if not curve or not any(loads.values()):
        return Room(1, EVERY_HOUR, "no load of it is known: 1 host may be out")
    host = curve.capacity or max(loads.values()) / hosts
    spare = spare_hosts(loads, hosts, at * host, lasts)
    hours = {k: frozenset(h for h, own in spare.items() if own >= k) for k in range(1, most + 1)}
    best = max(hours, key=lambda k: k * len(hours[k]))
    if not hours[best]:
        raise RefusedError(
            f"{pop}: in no hour of the week can a host be out below max_load "
            f"({percent(100 * at)} % of its capacity); raise max_load"
        )
    return Room(best, hours[best], f"{hours_text(hours[best])}: {several(best, 'host')} may be out")


def spare_hosts(
    loads: Mapping[int, float], hosts: int, each: float, lasts: float
) -> dict[int, int]:
    """How many of so many hosts are not needed by hour of the week, if each carries so much: also
    in the hours after it, into which a batch reaches that ``lasts`` so many seconds."""
    reach = range(1 + math.ceil(lasts / HOUR))
    found = {}
    for hour in loads:
        after = [loads.get((hour + more) % WEEK_HOURS) for more in reach]
        known = [load for load in after if load is not None]
        if len(known) == len(after):
            found[hour] = hosts - math.ceil(max(known) / each - 1e-9)
    return found


def hours_text(hours: Set[int]) -> str:
    """Hours of the week as people write them: ``Mon-Thu 01:00-05:00 UTC``."""
    if hours == EVERY_HOUR:
        return "at any time"
    spans = days_by_hours(hours).items()
    told = [f"{_days(days)} {start:02}:00-{end:02}:00" for (start, end), days in spans]
    return f"{few(told, ', ')} UTC"


def _days(days: Sequence[str]) -> str:
    """Days in the order of the week; those in a row by the first and the last of them."""
    rows: list[list[str]] = []
    for day in days:
        if rows and DAYS.index(rows[-1][-1]) + 1 == DAYS.index(day):
            rows[-1].append(day)
        else:
            rows.append([day])
    return "+".join("-".join(dict.fromkeys((row[0].title(), row[-1].title()))) for row in rows)
