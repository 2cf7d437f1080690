# SPDX-License-Identifier: Apache-2.0
"""When which PoP of a campaign has its turn: a list by priority that looks ahead, the bound before
which no schedule can end, and what each constraint costs. Pure; nothing is asked or touched.

Rings follow one another. In a ring a PoP takes a place of ``max_concurrent`` until its soak ends,
or its promotion where each PoP has its own verdict. Baselines and soaks go on in a freeze, and no
batch begins in one. Batches of twins take turns. A PoP may have hours of its own for its batches.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, partial
from heapq import heapify, heappop, heappush
from typing import Callable

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.schedule import (
    Closed,
    Cost,
    PopWork,
    Range,
    RingWork,
    Schedule,
    Turn,
)
from edgetune.base.durations import DAY, HOUR
from edgetune.base.freezes import (
    EVERY_HOUR,
    WEEK_HOURS,
    freezes_beside,
    hour_of_week,
    joined_spans,
    open_from,
)

TICK = 600.0
"""Seconds between two steps of the rule advance_campaigns: whatever follows waits so long at most.
"""
WEEK = WEEK_HOURS * HOUR
_HORIZON = 20 * 365 * DAY
_AT_ONCE = 60 * DAY
_AHEAD = 8
"""PoPs of the list that are compared before one begins."""
_FAR_AHEAD = 32
"""The same of those that have hours of their own."""
_MANY = 100
"""PoPs of a ring for which one list is made, and no other is tried."""
_FEW, _POINTS = 10, 100
"""Points of time in the work of the smallest PoP, for the bound: the least and the most."""
_TRIES = 150_000
"""How many times it is worked out when a PoP ends, if that is enough for a few points."""
_KINDS = 32
"""How many kinds of PoPs it tells apart."""
_MANY_TIMES = 20
"""How many times the work of a PoP another one has, where that of the first counts for nothing."""
LOOK = 300.0
"""Seconds between two looks of the rule advance_soaking, which sees that a soak is over."""
_LEAST_COST = 60.0
_NEARLY = 0.98


def make_schedule(rings: Sequence[RingWork], start: float, compared: bool = True) -> Schedule:
    """The schedule of what is left of a campaign that goes on at ``start``; ``compared`` with those
    without one of its constraints, of which there is no cost otherwise."""
    calendars = _Calendars(start)
    likely, cautious = _best(rings, start, calendars)
    end = cautious.end
    without = [f"{n}: {why}" for ring in rings for n, why in ring.unknown.items()]
    late = [ring.name for ring in rings if ring.approval]
    without += [f"the time that an approval of {', '.join(late)} takes"] if late else []
    turns = [
        Turn(
            each.pop,
            each.ring,
            _range(own.begins, each.begins),
            _range(own.soaked, each.soaked),
            _range(own.ends, each.ends),
            each.why,
            each.load,
        )
        for each in sorted(cautious.turns.values(), key=lambda own: own.begins)
        for own in [likely.turns[each.pop]]
    ]
    every = {
        name: _best(relaxed, start, calendars)[1].end
        for name, relaxed in _relaxed(rings).items()
        if compared
    }
    costs = [Cost(name, end - sooner) for name, sooner in every.items() if sooner < end]
    auto = _best(_all_at_once(rings), start, calendars)[1].end if compared else end
    return Schedule(
        start,
        (likely.end, end),
        _bound(rings, start, calendars),
        turns,
        sorted((own for own in costs if own.seconds >= _LEAST_COST), key=lambda c: -c.seconds),
        min(end, auto),
        without,
    )


def _range(one: float, other: float) -> Range:
    """A PoP may have an earlier turn although all takes longer: others wait for their twins."""
    return one, max(one, other)


def order_of(ring: RingWork, start: float, room: float = math.inf) -> list[str]:
    """The PoPs of a ring that have not begun, in the order in which they are to begin; of a large
    ring no more than there is ``room`` for."""
    calendars = _Calendars(start)
    # Who begins too early for the longer way only waits, and for the shorter one misses an hour.
    cautious = not _has_hours([ring])
    if _is_large([ring]):
        run = _Run([], start, calendars, _RULES[-1], cautious)
        run.soak(ring, start, room)
    else:
        run = _shortest([ring], start, calendars, cautious)
    ahead = {own.name for own in ring.pops if not (own.begun or own.waits)}
    turns = sorted(run.turns.values(), key=lambda own: own.begins)
    return [own.pop for own in turns if own.pop in ahead]


def begins_at(rings: Sequence[RingWork], start: float) -> dict[str, float]:
    """When each PoP begins at the soonest; what has begun did so at ``start``."""
    likely, _ = _best(rings, start, _Calendars(start))
    return {name: turn.begins for name, turn in likely.turns.items()}


class _Calendar:
    """When nothing begins; far ahead it is worked out as it is asked for."""

    def __init__(self, closed: Closed, hours: frozenset[int], start: float) -> None:
        self._closed, self._start, self._known = closed, start, start
        self._shut = [] if hours == EVERY_HOUR else _shut_spans(hours)
        self._is_free = not (closed or self._shut)
        shut = freezes_beside("", hours)
        self._is_endless = not self._is_free and open_from((*closed, *shut), start) is None
        self._starts: list[float] = []
        self._ends: list[float] = []

    def open(self, moment: float) -> float:
        """The first moment from then on at which something may begin; infinite without one."""
        if self._is_free or moment == math.inf:
            return moment
        if self._is_endless or moment - self._start > _HORIZON:
            return math.inf
        self._learn(moment)
        number = bisect_right(self._starts, moment) - 1
        return moment if number < 0 else max(moment, self._ends[number])

    def closes(self, moment: float) -> float:
        """When that ends again, for a moment that is open; no later than is known."""
        if self._is_free:
            return math.inf
        number = bisect_right(self._starts, moment)
        return self._starts[number] if number < len(self._starts) else self._known

    def through(self, moment: float, count: int, each: float) -> float:
        """When so many batches end, one after the other."""
        while count:
            moment = self.open(moment)
            if moment == math.inf:
                break
            room = self.closes(moment) - moment
            fits = count if each * count <= room else max(1, min(count, math.ceil(room / each)))
            moment, count = moment + fits * each, count - fits
        return moment

    def _learn(self, until: float) -> None:
        """Freezes of the time until then, and of a while after it, each to its end."""
        if until + _AT_ONCE > self._known:
            self._known = until + 3 * _AT_ONCE
            begin, end = self._start - _AT_ONCE, self._known + _AT_ONCE
            own = [span for each in self._closed for span in each.spans(begin, end)]
            spans = joined_spans([*own, *self._weekly(begin, end)], begin, end)
            self._starts = [start for start, _ in spans if start < self._known]
            self._ends = [end for _, end in spans]

    def _weekly(self, begin: float, end: float) -> Iterator[tuple[float, float]]:
        """When its hours of the week are shut, week by week: freezes are worked out by the day."""
        for week in range(int(begin // WEEK) - 1, int(end // WEEK) + 2):
            yield from ((week * WEEK + own[0], week * WEEK + own[1]) for own in self._shut)


def _shut_spans(hours: frozenset[int]) -> list[tuple[float, float]]:
    """From when to when other hours are, in seconds of a week as the epoch began one."""
    shut = [hour * HOUR for hour in range(WEEK_HOURS) if hour_of_week(hour) not in hours]
    return joined_spans([(start, start + HOUR) for start in shut], 0.0, WEEK)


class _Calendars:
    """One for each set of freezes and hours, whichever ring or PoP has it."""

    def __init__(self, start: float) -> None:
        self._start = start
        self._made: dict[tuple[Closed, frozenset[int]], _Calendar] = {}

    def of(self, ring: RingWork, hours: frozenset[int] = EVERY_HOUR) -> _Calendar:
        key = ring.closed, hours
        if key not in self._made:
            self._made[key] = _Calendar(*key, self._start)
        return self._made[key]


@dataclass
class _Turn:
    """One moment of each kind, as a ``Turn`` has ranges of."""

    pop: str
    ring: str
    begins: float
    soaked: float
    ends: float
    why: str
    load: str


@dataclass(frozen=True)
class _Rule:
    """How a list is made: the ``longest`` first, or in the order of the ring, or in this ``order``;
    and how many PoPs of it are compared, of which the one that waits the least begins. Of what is
    usual of its hours ``credit`` counts as if it were not waited for."""

    longest: bool
    ahead: int
    credit: float = 0.25
    order: Mapping[str, int] = field(default_factory=dict)


_RULES = [_Rule(longest, ahead) for longest in (False, True) for ahead in (1, _AHEAD)]
_OF_HOURS = [_Rule(longest, _AHEAD, credit=1.0) for longest in (False, True)]
"""More of them, where PoPs have hours of their own."""


def _best(rings: Sequence[RingWork], start: float, calendars: _Calendars) -> tuple[_Run, _Run]:
    """The likely run and the cautious one, by the list whose cautious run ends first."""
    cautious = _shortest(rings, start, calendars, cautious=True)
    turns = sorted(cautious.turns.values(), key=lambda turn: turn.begins)
    order = {turn.pop: number for number, turn in enumerate(turns)}
    likely = _Run(rings, start, calendars, _Rule(False, 1, order=order), cautious=False)
    # What waits for the steps of rules may meet freezes and twins at a better time.
    return (likely if likely.end <= cautious.end else cautious), cautious


def _shortest(
    rings: Sequence[RingWork], start: float, calendars: _Calendars, cautious: bool
) -> _Run:
    """The run whose list ends first. Where there are many PoPs, that of the longest first
    which looks ahead: to try all takes long, and gains little."""
    alike = all(len({_shape(pop) for pop in ring.pops}) <= 1 for ring in rings)
    rules = _RULES[:1] if alike else _RULES[-1:] if _is_large(rings) else _RULES
    rules = [*rules, *_OF_HOURS] if len(rules) > 1 and _has_hours(rings) else rules
    runs = [_Run(rings, start, calendars, rule, cautious) for rule in rules]
    return min(runs, key=lambda run: run.end)


def _has_hours(rings: Sequence[RingWork]) -> bool:
    return any(pop.hours != EVERY_HOUR for ring in rings for pop in ring.pops)


def _is_large(rings: Sequence[RingWork]) -> bool:
    return max((len(ring.pops) for ring in rings), default=0) > _MANY


def _shape(pop: PopWork) -> PopWork:
    return replace(pop, name="", why="")


class _Run:
    """A schedule by one rule. A ``cautious`` one takes the most of each range, and lets whatever
    follows wait for the next step of the rules."""

    def __init__(
        self,
        rings: Sequence[RingWork],
        start: float,
        calendars: _Calendars,
        rule: _Rule,
        cautious: bool,
    ) -> None:
        self.rule, self.turns, self._calendars = rule, dict[str, _Turn](), calendars
        self._most, self._tick, self._look = int(cautious), TICK * cautious, LOOK * cautious
        # When hosts of a PoP may be out: its twins leave these times to it.
        self._out: dict[str, list[tuple[float, float]]] = {}
        self._usual: dict[str, float] = {}
        self.end = start
        for ring in rings:
            self.end = self._through(ring, self.end)

    def _through(self, ring: RingWork, start: float) -> float:
        """When a ring that may begin at ``start`` is closed."""
        self.soak(ring, start)
        own = [self.turns[pop.name] for pop in ring.pops]
        if ring.pooled and own:
            self._promote(ring, max(turn.soaked for turn in own) + self._tick)
        return max([start, *(turn.ends for turn in own)]) + (self._tick if own else 0.0)

    def soak(self, ring: RingWork, start: float, room: float = math.inf) -> None:
        """Give the PoPs of a ring their turns, or so many of those that have not begun."""
        under_way = [pop for pop in ring.pops if pop.begun or pop.waits]
        busy = [self._place(ring, pop, start, keep=True) for pop in under_way]
        held = [until for until, pop in zip(busy, under_way) if not pop.waits]
        heapify(held)
        ahead = [pop for pop in ring.pops if not (pop.begun or pop.waits)]
        if self.rule.longest:
            ahead.sort(key=self._work, reverse=True)
        ahead.sort(key=lambda pop: self.rule.order.get(pop.name, 0))
        free, last = start, max(0.0, len(ahead) - room)
        while len(ahead) > last:
            while ring.at_once and len(held) >= ring.at_once:
                free = max(free, heappop(held))
            begins = self._calendars.of(ring).open(free + self._tick)
            pop = ahead.pop(self._next(ring, ahead, begins))
            heappush(held, self._place(ring, pop, begins, keep=True))

    def _next(self, ring: RingWork, ahead: Sequence[PopWork], begins: float) -> int:
        """Which PoP among the first ones has its place for the least time in vain, beside what is
        usual of its hours: who has few of them begins when they fit."""
        most = self.rule.ahead if ring.at_once else 1
        first: list[int] = [*range(min(len(ahead), most))]
        if most > 1 and any(pop.hours != EVERY_HOUR for pop in ahead):
            # Some from all of the list, as others may have hours that come sooner.
            first += range(most, len(ahead), 1 + len(ahead) // _FAR_AHEAD)
        if len(first) == 1 or begins == math.inf:
            return 0

        def idle(number: int) -> float:
            pop = ahead[number]
            return self._idle(ring, pop, begins) - self._usual_idle(ring, pop)

        return min(first, key=idle)

    def _idle(self, ring: RingWork, pop: PopWork, begins: float) -> float:
        """How long a PoP that begins then has its place in vain."""
        return self._place(ring, pop, begins, keep=False) - begins - self._work(pop)

    def _usual_idle(self, ring: RingWork, pop: PopWork) -> float:
        """The same on average over a week, of a PoP that has hours of its own."""
        if pop.hours == EVERY_HOUR:
            return 0.0
        if pop.name not in self._usual:
            each = [self._idle(ring, pop, self.end + number * WEEK / 42) for number in range(42)]
            self._usual[pop.name] = self.rule.credit * sum(each) / len(each)
        return self._usual[pop.name]

    def _work(self, pop: PopWork) -> float:
        return pop.baseline[self._most] + pop.changes * pop.batch[self._most] + pop.soak

    def _place(self, ring: RingWork, pop: PopWork, begins: float, keep: bool) -> float:
        """Until when a PoP that begins then takes its place."""
        calendar = self._calendars.of(ring, pop.hours)
        watched = begins + pop.baseline[1] if self._most else pop.watched(begins)
        changed = self._batches(calendar, pop, watched, pop.changes, keep)
        soaked = changed + pop.soak + self._look
        ends = soaked
        if not ring.pooled:
            ends = self._batches(calendar, pop, soaked + self._tick, pop.promotes, keep)
        if keep:
            of_pop = pop.name, ring.name, begins, soaked, ends, pop.why, pop.load
            self.turns[pop.name] = _Turn(*of_pop)
        return ends

    def _promote(self, ring: RingWork, verdict: float) -> None:
        """The ring has its verdict, and its PoPs are promoted in their order, ``at_once`` at a
        time, those first whose hours have come."""
        held: list[float] = []
        free, ahead = verdict, [*ring.pops]
        while ahead:
            if ring.at_once and len(held) >= ring.at_once:
                free = max(free, heappop(held) + self._tick)
            opens = {
                pop.hours: self._calendars.of(ring, pop.hours).open(free + self._tick)
                for pop in ahead
            }
            pop = min(ahead, key=lambda own: opens[own.hours]) if ring.at_once else ahead[0]
            ahead.remove(pop)
            calendar = self._calendars.of(ring, pop.hours)
            ends = self._batches(calendar, pop, free + self._tick, pop.promotes, keep=True)
            heappush(held, ends)
            self.turns[pop.name].ends = ends

    def _batches(
        self, calendar: _Calendar, pop: PopWork, start: float, count: int, keep: bool
    ) -> float:
        """When so many batches of a PoP have ended; its twins have their own before or after."""
        if not count:
            return start
        taken = sorted(span for twin in pop.twins for span in self._out.get(twin, ()))
        while True:
            begins = calendar.open(start)
            ends = calendar.through(begins, count, pop.batch[self._most])
            clash = [stop for other, stop in taken if other < ends and stop > begins]
            if not clash or begins == math.inf:
                break
            start = clash[0]
        if keep and pop.twins:
            self._out.setdefault(pop.name, []).append((begins, ends))
        return ends


def _relaxed(rings: Sequence[RingWork]) -> dict[str, list[RingWork]]:
    """The rings without one of their constraints, by its name."""
    found: dict[str, list[RingWork]] = {}
    limits = sorted({ring.at_once for ring in rings if 0 < ring.at_once < len(ring.pops)})
    if limits:
        named = " and ".join(str(limit) for limit in limits)
        found[f"max_concurrent {named}"] = _all_at_once(rings)
    for name in dict.fromkeys(each.name for ring in rings for each in ring.closed):
        found[f"the freeze {name}"] = [
            replace(ring, closed=tuple(each for each in ring.closed if each.name != name))
            for ring in rings
        ]
    pops = [pop for ring in rings for pop in ring.pops]
    if any(pop.baseline[1] for pop in pops):
        found["baselines"] = _with_each(rings, lambda pop: replace(pop, baseline=(0.0, 0.0)))
    if _has_hours(rings):
        found["max_load"] = _with_each(rings, lambda pop: replace(pop, hours=EVERY_HOUR))
    if any(pop.twins for pop in pops):
        found["twins, which take turns"] = _with_each(rings, lambda pop: replace(pop, twins=()))
    return found


def _with_each(rings: Sequence[RingWork], made: Callable[[PopWork], PopWork]) -> list[RingWork]:
    return [replace(ring, pops=tuple(map(made, ring.pops))) for ring in rings]


def _all_at_once(rings: Sequence[RingWork]) -> list[RingWork]:
    return [replace(ring, at_once=0) for ring in rings]


def _bound(rings: Sequence[RingWork], start: float, calendars: _Calendars) -> float:
    """The moment before which no schedule can end, if all takes the least that it may.

    A ring cannot end before the PoP that takes longest alone, nor before its places have done the
    work of all PoPs, which is bounded by the most that one place can have done until then.
    """
    for ring in rings:
        calendar = partial(calendars.of, ring)
        soaking = [pop for pop in ring.pops if not pop.waits]
        # What is under way goes on, be it more than that many.
        places = ring.at_once and max(ring.at_once, sum(pop.begun for pop in soaking))
        start = _phase_bound(calendar, soaking, places, start, promotes=not ring.pooled)
        if ring.pooled:
            promoted = [
                replace(pop, baseline=(0.0, 0.0), changes=pop.promotes, soak=0.0, begun=True)
                for pop in ring.pops
            ]
            start = _phase_bound(calendar, promoted, ring.at_once, start, promotes=False)
    return start


def _phase_bound(
    calendar: Callable[[frozenset[int]], _Calendar],
    pops: Sequence[PopWork],
    places: int,
    start: float,
    promotes: bool,
) -> float:
    """The bound of what goes on in so many places at a time, 0 for any number."""

    def through(pop: PopWork, own: _Calendar, watched: float) -> float:
        changed = own.through(watched, pop.changes, pop.batch[0])
        return own.through(changed + pop.soak, pop.promotes * promotes, pop.batch[0])

    def ends(pop: PopWork, moment: float) -> float:
        begins = moment if pop.begun else calendar(EVERY_HOUR).open(moment)
        return through(pop, calendar(pop.hours), pop.watched(begins))

    @cache
    def work(pop: PopWork) -> float:
        batches = pop.changes + pop.promotes * promotes
        least = pop.soak + batches * pop.batch[0]
        if pop.hours != EVERY_HOUR:
            least = max(
                least, _least(partial(through, pop, _Calendar((), pop.hours, start)), start)
            )
        return pop.baseline[0] + least

    longest = max([start, *(ends(pop, start) for pop in pops)])
    if not places or places >= len(pops) or longest == math.inf:
        return longest
    # A PoP that is nearly done takes hardly any time of a place, and would need points so dense.
    least = max(map(work, pops)) / _MANY_TIMES
    counted = [pop for pop in pops if work(pop) > least]
    each = sorted(map(work, counted))
    # One place has its part of the work at least, and its part of the PoPs.
    share = max(sum(each) / places, sum(each[: math.ceil(len(each) / places)]))
    if not share:
        return longest
    return max(longest, _volume_bound(_kinds(counted, work), ends, share, start))


def _least(ends: Callable[[float], float], start: float) -> float:
    """The least time from a moment of any week until it ``ends``, or nearly: a week is cut where
    that may be short, until nothing shorter is left to be found."""
    width = WEEK / 84
    cuts = [start + width * number for number in range(84)]
    parts = [(ends(cut) - cut - width, cut, width) for cut in cuts]
    heapify(parts)
    known = min(bound + width for bound, _, width in parts)
    while parts[0][2] > LOOK and parts[0][0] < known * _NEARLY:
        _, cut, width = heappop(parts)
        for half in (cut, cut + width / 2):
            end = ends(half)
            known = min(known, end - half)
            heappush(parts, (end - half - width / 2, half, width / 2))
    return parts[0][0]


def _kinds(
    pops: Sequence[PopWork], work: Callable[[PopWork], float]
) -> list[tuple[float, PopWork]]:
    """PoPs that are nearly alike as one: the most work of them, and what ends the soonest."""
    alike: dict[tuple[bool, int, int], list[PopWork]] = {}
    for pop in pops:
        alike.setdefault((pop.begun, pop.changes, pop.promotes), []).append(pop)
    parts = max(1, _KINDS // len(alike))
    return [
        _kind(part, work)
        for own in alike.values()
        for part in _cut(sorted(own, key=work), math.ceil(len(own) / parts))
    ]


def _cut(pops: Sequence[PopWork], size: int) -> list[Sequence[PopWork]]:
    return [pops[at : at + size] for at in range(0, len(pops), size)]


def _kind(part: Sequence[PopWork], work: Callable[[PopWork], float]) -> tuple[float, PopWork]:
    soonest = replace(
        part[0],
        baseline=tuple(min(pop.baseline[at] for pop in part) for at in (0, -1)),
        soak=min(pop.soak for pop in part),
        batch=(min(pop.batch[0] for pop in part),),
        measured=min(pop.measured for pop in part),
        hours=frozenset().union(*(pop.hours for pop in part)),
    )
    return max(map(work, part)), soonest


def _volume_bound(
    kinds: Sequence[tuple[float, PopWork]],
    ends: Callable[[PopWork, float], float],
    share: float,
    start: float,
) -> float:
    """When a place can have done its ``share`` of the work, if it does each kind as often as helps.

    The most that it can have done is worked out over points of time. Between two of them the most
    work counts from the earliest end: so the bound is never too late.
    """
    least = min(share, *(work for work, _ in kinds))
    points = max(_FEW, min(_POINTS, _TRIES * least / share / len(kinds)))
    step = max(1.0, least / points)
    # By point, the most that is done until the next one, and the earliest end of anything there.
    done: dict[int, tuple[float, float]] = {}
    most, point, moment = 0.0, 0, start
    while most < share - 1e-6:
        for work, kind in kinds:
            after = ends(kind, moment)
            if after == math.inf:
                return math.inf
            number = max(point + 1, int((after - start) / step))
            before = done.get(number, (0.0, math.inf))
            done[number] = (max(before[0], most + work), min(before[1], after))
        point += 1
        moment = start + point * step
        more, soonest = done.pop(point, (0.0, 0.0))
        if more > most:
            most, moment = more, max(moment, soonest)
    return moment
