# SPDX-License-Identifier: Apache-2.0
"""How long campaigns take beside the bound before which no schedule can end.

Fleets are drawn, of 5 to 1,000 PoPs: rings, max_concurrent, freezes, hosts, floors, twins. Each has
its campaign carried out on a virtual clock. The campaign's steps come every ten minutes and begin
PoPs in the order that the library's schedule gives them then; looks at soaks come every five
minutes. The library knows how long a batch takes as a range, and how long one takes indeed is
drawn for each PoP. Batches of twins take turns, as the gate has it: a batch begins while no twin
has one under way. The bound knows what was drawn.

Half of the fleets have a ``max_load``. The library sees five weeks of each PoP, of which one or two
are surges, and hours are missing. It says how many hosts may be out, and when.

Beside it stands the same campaign in the order of the inventory. At the end it is counted in how
many fleets twins were ever out together, and how many PoPs ever had so many hosts out that the
others were above their share of capacity, by the times at which batches began and ended.
"""

from __future__ import annotations

import bisect
import heapq
import math
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timezone
from typing import Any

from bench._table import carry_out, count_chosen, options, shown
from edgetune.base.documents.load import LoadCurve
from edgetune.base.documents.schedule import PopWork, RingWork
from edgetune.base.freezes import (
    DAYS,
    EVERY_HOUR,
    WEEK_HOURS,
    Freeze,
    closed_spans,
    hour_of_week,
)
from edgetune.fleet.campaign.hours import room_of
from edgetune.fleet.campaign.schedule import TICK, make_schedule, order_of

DAY, HOUR = 86400.0, 3600.0
LOOK = 300.0
START = 1_796_083_200.0
_PAST = int(START // HOUR) - 5 * WEEK_HOURS
_YEARS = 5 * 366 * DAY
COLUMNS = {
    "PoPs": "{pops}",
    "at once": "{at_once}",
    "freezes": "{freezes}",
    "twins": "{twins}",
    "max_load": "{max_load}",
    "days": "{days:.1f}",
    "bound": "{bound:.1f}",
    "times the bound": "{ratio:.2f}",
    "in the order of the inventory": "{plain:.2f}",
    "days as shown before": "{least:.1f} to {most:.1f}",
}
_SHOWN = 12
_LARGEST, _QUICK_LARGEST = 1000, 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    chosen, count = count_chosen(parser, arguments, "fleets", 100, quick=8)
    largest = _QUICK_LARGEST if chosen.quick else _LARGEST
    heading = "{fleets} fleets, seed {seed}; the {shown} largest of them"
    show = shown(heading, COLUMNS, _summary)
    return carry_out("schedule", chosen, lambda: run(count, chosen.seed, largest), show)


def run(count: int, seed: int, largest: int) -> dict[str, Any]:
    """The campaigns of so many fleets, the largest of them as ``figures``."""
    rows = [measured(drawn(random.Random(f"{seed}/{number}"), largest)) for number in range(count)]
    ratios = [row["ratio"] for row in rows]
    plain = [row["plain"] for row in rows]
    return {
        "fleets": count,
        "seed": seed,
        "shown": min(count, _SHOWN),
        "figures": sorted(rows, key=lambda row: -row["pops"])[:_SHOWN],
        "pops": sum(row["pops"] for row in rows),
        "median": statistics.median(ratios),
        "worst": max(ratios),
        "plain_median": statistics.median(plain),
        "plain_worst": max(plain),
        "overdue": sum(row["days"] > row["most"] for row in rows),
        "late_by": max(0.0, *(row["days"] / row["most"] - 1 for row in rows)),
        "together": sum(row["together"] for row in rows),
        "with_load": sum(row["of_known_load"] for row in rows),
        "beyond": sum(row["beyond"] for row in rows),
    }


def _summary(document: Mapping[str, Any]) -> None:
    print(
        "times the bound: {median:.2f} at the median, {worst:.2f} at worst; in the order of the "
        "inventory {plain_median:.2f} and {plain_worst:.2f}".format(**document)
    )
    print(
        "{together} of {fleets} fleets had twins out together; {overdue} ended later than shown "
        "before, by {late_by:.1%} at most; {pops:,} PoPs in all".format(**document)
    )
    print(
        "{beyond} of {with_load:,} PoPs of known load were drained beyond their share of "
        "capacity".format(**document)
    )


@dataclass(frozen=True)
class Fleet:
    """The ``rings`` as the library knows them, and by PoP how long a batch ``takes`` indeed, and
    what it can carry where that is known."""

    rings: list[RingWork]
    takes: Mapping[str, float]
    max_load: float
    carries: Mapping[str, Carries]


@dataclass(frozen=True)
class Carries:
    """The ``load`` of a PoP by hour of the week, and what the ``hosts`` that serve may carry: while
    ``out`` of them are in a batch, and at most so much ``each``."""

    load: Sequence[float]
    hosts: int
    out: int
    each: float

    def is_beyond(self, start: float, end: float) -> bool:
        """Whether the others carry more in any hour of a batch."""
        hours = range(int(start // HOUR), math.ceil(end / HOUR))
        most = max(self.load[hour_of_week(hour)] for hour in hours)
        return most > (self.hosts - self.out) * self.each * (1 + 1e-9)


def drawn(dice: random.Random, largest: int) -> Fleet:
    """A fleet as there may be one."""
    number = round(math.exp(dice.uniform(math.log(5), math.log(largest))))
    names = [f"p{index:04}" for index in range(number)]
    twins = _twins(dice, names, dice.choice((0.0, 0.3, 1.0)))
    baseline, soak = (dice.choice((6 * HOUR, 12 * HOUR, DAY, 2 * DAY)) for _ in range(2))
    freezes = tuple(
        freeze
        for freeze in (
            Freeze("evening", DAYS, 18 * 60, 23 * 60, timezone.utc),
            Freeze("weekend", ("sat", "sun"), 0, 24 * 60, timezone.utc),
        )
        if dice.random() < 0.5
    )
    reboots = dice.random() < 0.5
    sampled = dice.random() < 0.5
    each = (330.0, 630.0) if reboots else (30.0, 330.0)
    measured_since = START if sampled else math.inf
    sizes = {name: _hosts(dice) for name in names}
    pops = [
        PopWork(
            name,
            (120.0 if sampled else baseline, baseline),
            *_batches(*sizes[name], reboots, soak),
            each,
            twins=twins.get(name, ()),
            measured=measured_since,
        )
        for name in names
    ]
    early = max(2, number // 10)
    at_once = dice.choice((0, 1, 2, number // 20, number // 8, number // 4))
    at_once = max(at_once, math.ceil(number / 40)) if at_once else 0
    pooled = dice.random() < 0.5
    takes = {name: dice.uniform(*each) for name in names}
    max_load = dice.choice((0.0, 0.0, 0.0, 0.7, 0.8, 0.9))
    carries: dict[str, Carries] = {}
    if max_load:
        zones = dice.sample(range(24), dice.choice((1, 3, 24)))
        pops = [_with_load(dice, pop, *sizes[pop.name], max_load, zones, carries) for pop in pops]
    parts = {"canary": pops[:1], "early": pops[1:early], "fleet": pops[early:]}
    rings = [RingWork(n, tuple(own), at_once, pooled, freezes) for n, own in parts.items() if own]
    return Fleet(rings, takes, max_load, carries)


def _with_load(
    dice: random.Random,
    pop: PopWork,
    hosts: int,
    size: int,
    max_load: float,
    zones: Sequence[int],
    carries: dict[str, Carries],
) -> PopWork:
    """With the hours that the library finds for it; one of twenty has no curve."""
    zone, depth = dice.choice(zones), dice.uniform(0.5, 0.8)
    load = [_at(hour + zone, depth) * hosts for hour in range(WEEK_HOURS)]
    capacity = dice.choice((None, 1.0, 1.5))
    curve = None if dice.random() < 0.05 else LoadCurve(_PAST, _past(dice, load), capacity)
    room = room_of(pop.name, curve, hosts, size, max_load, pop.batch[1])
    if curve:
        each = max_load * (capacity or max(curve.by_hour.values()) / hosts)
        carries[pop.name] = Carries(load, hosts, room.hosts, each)
    batches = hosts // 2, room.hosts
    promotes = 1 + math.ceil((batches[0] - 1) / batches[1])
    changes = promotes * (2 if pop.changes > pop.promotes else 1)
    return replace(pop, changes=changes, promotes=promotes, hours=room.hours, load=room.why)


def _at(hour: int, depth: float) -> float:
    """The load of a host at an hour of the week: at most 1, less at night and at weekends."""
    weekend = 0.9 if hour // 24 % 7 >= 5 else 1.0
    return weekend * (1 - depth * (1 + math.cos(2 * math.pi * (hour % 24 - 4) / 24)) / 2)


def _past(dice: random.Random, load: Sequence[float]) -> list[float | None]:
    """Five weeks of it, with surges in one or two, and with holes."""
    surges = dice.sample(range(5), dice.choice((0, 1, 2)))
    times = [dice.uniform(1.5, 4.0) if week in surges else 1.0 for week in range(5)]
    return [
        None if dice.random() < 0.02 else times[n // WEEK_HOURS] * load[hour_of_week(_PAST + n)]
        for n in range(5 * WEEK_HOURS)
    ]


def _hosts(dice: random.Random) -> tuple[int, int]:
    """Those of a PoP, 4 to 100, and of a batch."""
    hosts = round(math.exp(dice.uniform(math.log(4), math.log(100))))
    return hosts, max(1, int(hosts * dice.choice((0.1, 0.2, 0.3, 0.5))))


def _batches(hosts: int, size: int, reboots: bool, soak: float) -> tuple[int, float, int]:
    """Those before the soak, the soak, and those of the promotion."""
    group = hosts // 2
    batches = 1 + math.ceil((group - 1) / size)
    return batches * (1 + reboots), soak, batches


def _twins(dice: random.Random, names: Sequence[str], share: float) -> dict[str, tuple[str, ...]]:
    """Pairs, and some PoPs that two others back up."""
    found: dict[str, set[str]] = {}
    order = dice.sample(names, len(names))
    for one, other in zip(order[::2], order[1::2]):
        if dice.random() < share:
            others = [other, dice.choice(order)] if dice.random() < 0.1 else [other]
            for twin in others:
                if twin != one:
                    found.setdefault(one, set()).add(twin)
                    found.setdefault(twin, set()).add(one)
    return {name: tuple(sorted(own)) for name, own in found.items()}


def measured(fleet: Fleet) -> dict[str, Any]:
    """How long its campaign takes, in days, beside the bound and what was shown before."""
    before = make_schedule(fleet.rings, START, compared=False)
    as_drawn = [
        replace(
            ring,
            pops=tuple(replace(pop, batch=(fleet.takes[pop.name],) * 2) for pop in ring.pops),
        )
        for ring in fleet.rings
    ]
    bound = make_schedule(as_drawn, START, compared=False).bound - START
    planned, plain = Campaign(fleet, planned=True), Campaign(fleet, planned=False)
    length = planned.carry_out() - START
    return {
        "pops": len(fleet.takes),
        "at_once": fleet.rings[0].at_once or "all",
        "freezes": ", ".join(own.name for own in fleet.rings[0].closed) or "none",
        "twins": sum(bool(pop.twins) for ring in fleet.rings for pop in ring.pops),
        "days": length / DAY,
        "bound": bound / DAY,
        "ratio": length / bound,
        "plain": (plain.carry_out() - START) / bound,
        "least": (before.ends[0] - START) / DAY,
        "most": (before.ends[1] - START) / DAY,
        "together": planned.twins_out_together(),
        "max_load": f"{fleet.max_load:.0%}" if fleet.max_load else "none",
        "of_known_load": len(fleet.carries),
        "beyond": planned.beyond_capacity(),
    }


@dataclass
class Pop:
    """A PoP on its way: its ``left`` batches of the present state, and when each was out."""

    work: PopWork
    state: str = "ahead"
    left: int = 0
    until: float = 0.0
    out: list[tuple[float, float]] = field(default_factory=list)


class Campaign:
    """A campaign that is carried out; ``planned`` in the order of the schedule."""

    def __init__(self, fleet: Fleet, planned: bool) -> None:
        self._fleet, self._planned = fleet, planned
        self._pops = {p.name: Pop(p) for ring in fleet.rings for p in ring.pops}
        self._events: list[tuple[float, str]] = []
        self._closed: list[tuple[float, float]] = []

    def carry_out(self) -> float:
        """When it is complete."""
        now = START
        for ring in self._fleet.rings:
            now = self._ring(ring, now)
        return now

    def _ring(self, ring: RingWork, now: float) -> float:
        own = [self._pops[pop.name] for pop in ring.pops]
        while True:
            now = self._step(ring, own, now)
            if all(pop.state == "complete" for pop in own):
                return now
            self._until_news(ring, now)
            # The rules come at their own times, whenever something happened.
            now = max(now, self._events[0][0] if self._events else now)
            now = TICK * math.floor(now / TICK + 1)
            while self._events and self._events[0][0] <= now:
                moment, name = heapq.heappop(self._events)
                self._go_on(ring, self._pops[name], moment)

    def _until_news(self, ring: RingWork, now: float) -> None:
        """A freeze is all that a step may wait for where no PoP is under way."""
        if not self._events:
            own = [self._pops[pop.name] for pop in ring.pops]
            waiting = [pop.work for pop in own if pop.state == "waiting"]
            opens = [self._opens(ring, now, pop.hours) for pop in waiting]
            opens += [self._opens(ring, now)] if any(p.state == "ahead" for p in own) else []
            assert min(opens) > now, "the campaign waits for nothing"
            self._events.append((min(opens), ring.pops[0].name))

    def _opens(self, ring: RingWork, now: float, hours: frozenset[int] = EVERY_HOUR) -> float:
        """When a batch may begin, in these hours of the week."""
        opens = self._thaws(ring, now)
        while hour_of_week(int(opens // HOUR)) not in hours:
            opens = self._thaws(ring, HOUR * (opens // HOUR + 1))
        return opens

    def _thaws(self, ring: RingWork, now: float) -> float:
        """When no freeze is in force, by all of five years."""
        if not self._closed and ring.closed:
            self._closed = closed_spans(ring.closed, START - DAY, START + _YEARS)
        number = bisect.bisect_right(self._closed, (now, math.inf)) - 1
        assert now < START + _YEARS, "the campaign takes too long"
        return max(now, self._closed[number][1]) if number >= 0 else now

    def _step(self, ring: RingWork, own: Sequence[Pop], now: float) -> float:
        """What the campaign does at one of its steps."""
        under_way = [p for p in own if p.state in ("baseline", "changing", "soaking", "promoting")]
        room = ring.at_once - len(under_way) if ring.at_once else len(own)
        waiting = [pop for pop in own if pop.state == "waiting"]
        if len(waiting) + sum(pop.state == "complete" for pop in own) == len(own):
            due = [p for p in waiting if not ring.at_once or self._is_open(ring, p, now)]
            for pop in due[: max(0, room)]:
                self._enter(ring, pop, "promoting", now)
        ahead = [pop for pop in own if pop.state == "ahead"]
        if ahead and room > 0 and self._opens(ring, now) == now:
            for name in self._order(ring, own, now, min(room, len(ahead)))[:room]:
                self._enter(ring, self._pops[name], "baseline", now)
        return now

    def _is_open(self, ring: RingWork, pop: Pop, now: float) -> bool:
        return pop.work.hours == EVERY_HOUR or self._opens(ring, now, pop.work.hours) == now

    def _order(self, ring: RingWork, own: Sequence[Pop], now: float, room: int) -> list[str]:
        ahead = [pop.work.name for pop in own if pop.state == "ahead"]
        if not self._planned or room == len(ahead):
            return ahead
        left = tuple(self._left(pop, now) for pop in own if pop.state != "complete")
        return order_of(replace(ring, pops=left), now, room)

    def _left(self, pop: Pop, now: float) -> PopWork:
        """As the library sees it in the record of the campaign."""
        if pop.state == "ahead":
            return pop.work
        work = replace(pop.work, begun=True, baseline=(0.0, 0.0), measured=math.inf)
        rest = max(0.0, pop.until - now)
        if pop.state == "baseline":
            return replace(work, baseline=(rest, rest))
        if pop.state == "changing":
            return replace(work, changes=pop.left)
        soak = rest if pop.state == "soaking" else 0.0
        promotes = pop.left if pop.state == "promoting" else work.promotes
        waits = pop.state == "waiting"
        return replace(work, changes=0, soak=soak, promotes=promotes, waits=waits)

    def _enter(self, ring: RingWork, pop: Pop, state: str, now: float) -> None:
        pop.state = state
        if state == "baseline":
            pop.until = max(pop.work.watched(now), now)
            heapq.heappush(self._events, (pop.until, pop.work.name))
        elif state in ("changing", "promoting"):
            pop.left = pop.work.changes if state == "changing" else pop.work.promotes
            self._batch(ring, pop, now)

    def _go_on(self, ring: RingWork, pop: Pop, now: float) -> None:
        """What comes next of a PoP at the end of what it did."""
        if pop.state == "baseline":
            self._enter(ring, pop, "changing", now)
        elif pop.state in ("changing", "promoting"):
            self._batch(ring, pop, now)
        elif pop.state == "soaking" and ring.pooled:
            pop.state = "waiting"
        elif pop.state == "soaking":
            self._enter(ring, pop, "promoting", now)

    def _batch(self, ring: RingWork, pop: Pop, now: float) -> None:
        """Begin the next batch, unless a freeze or a twin forbids it."""
        name = pop.work.name
        if not pop.left and pop.state == "changing":
            pop.state, pop.until = "soaking", now + pop.work.soak
            look = LOOK * math.ceil((pop.until - now) / LOOK)
            heapq.heappush(self._events, (now + look, name))
            return
        if not pop.left:
            pop.state = "complete"
            heapq.heappush(self._events, (now, name))
            return
        opens = self._opens(ring, now, pop.work.hours)
        busy = [end for twin in pop.work.twins for end in self._ends(twin, now)]
        wait = max([opens, *busy])
        if wait > now:
            # A batch that waits looks again within a minute.
            heapq.heappush(self._events, (wait + 60.0 * bool(busy), name))
            return
        pop.left -= 1
        pop.out.append((now, now + self._fleet.takes[name]))
        heapq.heappush(self._events, (pop.out[-1][1], name))

    def _ends(self, twin: str, now: float) -> list[float]:
        out = self._pops[twin].out
        return [out[-1][1]] if out and out[-1][1] > now else []

    def beyond_capacity(self) -> int:
        """How many PoPs ever had a batch that left the others more than their share."""
        return sum(
            any(carries.is_beyond(*span) for span in self._pops[name].out)
            for name, carries in self._fleet.carries.items()
        )

    def twins_out_together(self) -> bool:
        """Whether batches of twins ever overlapped."""
        for pop in self._pops.values():
            for twin in pop.work.twins:
                spans = sorted(
                    [*((*o, 0) for o in pop.out), *((*o, 1) for o in self._pops[twin].out)]
                )
                for (_, end, own), (start, _, other) in zip(spans, spans[1:]):
                    if own != other and start < end:
                        return True
        return False


if __name__ == "__main__":
    sys.exit(main())
