# SPDX-License-Identifier: Apache-2.0
"""One seed of congestion control: rounds under faults on real hosts, and the audit of it all.

The pack is a copy whose rounds last seconds. Its sockets are read through a ClickHouse that is made
up (``clients``): some prefixes are slow at any time, and that of the load balancer always is. So
the answers to the load's own requests leave hosts by routes of ours.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Callable

from bench._mutation import Edit
from bench.chaos import auditor, told
from bench.chaos.auditor import STOP_SECONDS, Broken, Window
from bench.chaos.breakage import CLIENTS_PORT, carry_out
from bench.chaos.rounds_sight import RoundsWatch, algorithms
from bench.chaos.schedule import EXPIRED, HOSTS, RoundsSchedule
from bench.chaos.sight import Event, lines_of, look_at_all
from bench.chaos.site import Site
from bench.chaos.stage import CLIENT_LOGS, Report, Stage, Ticks, in_lab, met
from lab import pop as lab

DOCUMENT = "lib/edgetune/base/documents/congestion.py"
QUICK = (
    Edit(DOCUMENT, "ROUND = 300\n", "ROUND = 2\n"),
    Edit(DOCUMENT, "SHORTEST_TTL = 600\n", "SHORTEST_TTL = 1\n"),
    Edit("lib/edgetune/wings/congestion/rounds/work.py", "HOLDS = float(ROUND)\n", "HOLDS = 6.0\n"),
)
"""A pack whose rounds last two seconds, and whose claims outlive a dead process by six."""

TTL = 12
# Every kernel has it, and no connection of a host begins with it.
ALGORITHM = "reno"
ENTRY = {
    "sockets": {"source": "clickhouse", "url": f"http://127.0.0.1:{CLIENTS_PORT}"},
    "canary": "e001",
    "algorithm": ALGORITHM,
    "ttl": TTL,
    "most_leave": 1,
    "thresholds": {"window": 2, "sockets": 1, "stay": 2, "duty": 0.5, "held_out": 0.3},
}
MOST_ROUNDS = 14
FEWEST_ROUNDS = 4
REST_ROUNDS = 8
UNDER_WAY = 5.0
"""Seconds in which a host may still be told what was sent before a rollback."""


def run_rounds(
    schedule: RoundsSchedule,
    keep: bool = False,
    stop: Callable[[], bool] = lambda: False,
    edits: Sequence[Edit] = (),
) -> Report:
    """Run it in a lab of its own, as ``in_lab`` says."""

    def play(site: Site) -> Report:
        site.up(len(HOSTS), "sqlite", stays=keep)
        with site.pop() as pop:
            pop["congestion"] = ENTRY
        site.start_clients(CLIENTS_PORT)
        return RoundsRun(schedule, site, stop).report()

    return in_lab(f"rounds-{schedule.seed}-", play, keep, [*QUICK, *edits])


class RoundsRun(Stage):
    """Rounds of one PoP under the faults of a schedule."""

    def __init__(self, schedule: RoundsSchedule, site: Site, stop: Callable[[], bool]) -> None:
        super().__init__(schedule.faults, site, stop)
        self.schedule = schedule
        self.seen = RoundsWatch(site.home, site.store)
        self._broken: list[Broken] = []

    def look(self) -> None:
        super().look()
        if self.watch.sights:
            self.events += self.seen.poll(self.watch.sights[-1].boots)

    def report(self) -> Report:
        """Run to the end, audit, and say what came of it."""
        before = look_at_all(self.home)
        self.look()
        during = Window(time.time())
        self.drive([carry_out(self, fault) for fault in self.drawn], self._story())
        during.end = time.time()
        lab.heal(self.home)
        self.drive([], self._comes_to_rest())
        after = look_at_all(self.home)
        schedule, broken = self.schedule, [*self._broken, *self._audit()]
        for name, was in before.items():
            now = after[name]
            left = was and now and dict(was.fingerprint) != dict(now.fingerprint)
            if left or now is None:
                broken.append(Broken("whole", f"{name} is not as it was: {_different(was, now)}"))
        broken = [*_first_of_each(broken)]
        return self.told(
            (schedule.seed, schedule.ending, "rounds"),
            "broken" if broken else schedule.ending,
            broken,
            missed=self.missed(during),
            because=self._why_not_counted(during),
        )

    def _story(self) -> Ticks:
        """Rounds until each fault has come, or never will."""
        for number in range(MOST_ROUNDS):
            if number >= FEWEST_ROUNDS and len(self.notes) == len(self.drawn):
                return
            yield from self._round()

    def _round(self) -> Ticks:
        self.events.append(Event(time.time(), "round", ""))
        yield from self.workflow("tune_congestion", "pop=lab1")

    def _comes_to_rest(self) -> Ticks:
        """Nothing is broken any more: hosts are alike, and then nothing of ours is left."""
        yield from self.at_rest()
        known = self.seen.sights[-1].known
        if known is not None and known.state == told.ROLLED_BACK:
            yield from self.edgetune("resume_congestion", "pop=lab1", "requested_by=chaos")
        for _ in range(REST_ROUNDS):
            yield from self._round()
            if not [*self._unlike()]:
                break
        self._broken += self._unlike()
        if self.schedule.ending == EXPIRED:
            yield from self.until(self._nothing_stands, TTL + told.LATE)
        else:
            yield from self.edgetune("roll_back_congestion", "pop=lab1", "reason=chaos")
        yield from self.at_rest()
        self._broken += told.nothing_left(self.seen.sights[-1])

    def _nothing_stands(self) -> bool:
        return not any(self.seen.sights[-1].hosts.values())

    def _unlike(self) -> Iterator[Broken]:
        self.look()
        last = self.seen.sights[-1]
        yield from told.alike(last, self.seen.chosen)
        if not self.seen.chosen:
            yield Broken("told", "nothing was chosen, so nothing is proven", last.time)
        for name in HOSTS:
            if algorithms(self.home, name) - {ALGORITHM}:
                yield Broken("told", f"{name} has routes without {ALGORITHM}", last.time)

    def _audit(self) -> Iterator[Broken]:
        sights = self.seen.sights
        lost, unready = (lines_of(self.home / "lab" / name) for name in CLIENT_LOGS)
        yield from auditor.requests(lost, unready, self.faults)
        yield from self._in_service()
        yield from told.rounds(sights, UNDER_WAY)
        yield from told.one_content(sights)
        for stop in self.faults.stops:
            yield from told.stopped(sights, stop.start + STOP_SECONDS, stop.end)

    def _in_service(self) -> Iterator[Broken]:
        """No host is ever taken out of service."""
        for sight in self.watch.sights:
            for name, (admin, _) in sight.servers.items():
                if admin != "ready":
                    yield Broken("service", f"{name} is {admin}", sight.time)

    def _why_not_counted(self, during: Window) -> str:
        """Why a run says nothing, or empty."""
        every, those_met = set(self.drawn), met(self.notes, during)
        if those_met < every:
            return f"{len(those_met)} of {len(every)} faults met the rounds"
        treated = any(now for sight in self.seen.sights for now in sight.hosts.values())
        return "" if treated else "no host was told anything"


def _first_of_each(broken: Sequence[Broken]) -> Iterator[Broken]:
    """What is so for a while is seen at each look."""
    said = set()
    for own in broken:
        if (own.promise, own.what) not in said:
            said.add((own.promise, own.what))
            yield own


def _different(was: Any, now: Any) -> str:
    if was is None or now is None:
        return "it is off"
    return ", ".join(auditor.changed_paths(was, now))
