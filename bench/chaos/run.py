# SPDX-License-Identifier: Apache-2.0
"""One seed: a rollout under faults, somebody who picks it up again, and the audit of it all."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Callable, Optional

import yaml

from bench._mutation import Edit
from bench.chaos import auditor
from bench.chaos.auditor import Broken, End, Window
from bench.chaos.breakage import carry_out
from bench.chaos.schedule import HOSTS, MUST_SERVE, Fault, Moment, Schedule
from bench.chaos.sight import SETTING, HostState, Sight, lines_of, look_at_all
from bench.chaos.site import Site, read_result
from bench.chaos.stage import (
    CLIENT_LOGS,
    LIMIT,
    SETTLE_SECONDS,
    Note,
    Report,
    Stage,
    Ticks,
    in_lab,
    met,
)
from lab import CHECKOUT
from lab import pop as lab

Looks = Mapping[str, Optional[HostState]]

SWEEP_SECONDS = 2.0  # between two calls of recover_orphans
ENDED = ("complete", "rolled_back", "held")
NOT_BACK = ("complete", "held")
SKIPPED = re.compile(r"\b(e\d\d\d)(?=[^:;]*, skipped)")
# Four hosts can be drawn in four or six ways: hence the alphas.
OPTIONS = ("baseline=6", "soak=14", "interval=2", "warmup=1", "alpha_benefit=0.3", "alpha_harm=0.3")
REAL = ("dry_run=false", "wait=true", *OPTIONS)


def run_seed(
    schedule: Schedule,
    keep: bool = False,
    stop: Callable[[], bool] = lambda: False,
    edits: Sequence[Edit] = (),
) -> Report:
    """Run it in a lab of its own, as ``in_lab`` says."""

    def play(site: Site) -> Report:
        site.up(len(HOSTS), schedule.coordination, stays=keep)
        return Run(schedule, site, stop).report()

    return in_lab(f"chaos-{schedule.seed}-", play, keep, edits)


class Run(Stage):
    """One rollout under the faults of a schedule."""

    def __init__(self, schedule: Schedule, site: Site, stop: Callable[[], bool]) -> None:
        super().__init__(schedule.faults, site, stop)
        self.schedule = schedule
        self._asked = 0
        self._rolling = Window(self.begun)
        self._status: dict[str, Any] = {}

    def report(self) -> Report:
        """Run to the end, audit, and say what came of it."""
        before = look_at_all(self.home)
        self.watch.poll(time.time())
        parts = [carry_out(self, fault) for fault in self.drawn]
        parts += [self._by_hand(self.schedule.by_hand)] if self.schedule.by_hand else []
        self._rolling = Window(time.time())
        self.drive(parts, self._story())
        self._rolling.end = time.time()
        lab.heal(self.home)
        self.drive([], self._calm_down())
        calm = time.time()
        after = look_at_all(self.home)
        self.drive([], self._ask_again())
        again = look_at_all(self.home)
        broken = [*self._audit(before, after, calm), *self._repeated(after, again, calm)]
        about = f"{self.schedule.coordination}, {self.schedule.resume}"
        return self.told(
            (self.schedule.seed, self.schedule.scenario, about),
            self._end().outcome,
            broken,
            missed=self.missed(self._rolling),
            because=why_not_counted(self.drawn, self.notes, self._rolling, self._sights(calm)),
        )

    def _story(self) -> Ticks:
        """The rollout, and what becomes of it."""
        schedule = self.schedule
        words = ("pop=lab1", f"tuning={schedule.tuning}", f"test_fraction={schedule.test_fraction}")
        for _ in range(2):  # a fault may have kept it from beginning at all
            if not self._rollout:
                yield from self.workflow("rollout_pop", *words, *REAL)
                yield from self._settle()
        if schedule.scenario in ("interrupted", "returned") and self._state in NOT_BACK:
            yield from self.workflow("roll_back_pop", f"rollout={self._rollout}")
            yield from self._settle()

    def _by_hand(self, moment: Moment) -> Ticks:
        yield from self.moment(moment)
        known = False
        while not known:  # a store that is away comes back
            known = yield from self._ask_status()
        if self._rollout:
            yield from self.workflow("roll_back_pop", f"rollout={self._rollout}")

    def _settle(self) -> Ticks:
        """Until the rollout has ended: a person carries it on once, or the rule does it alone."""
        person = self.schedule.resume == "person"
        while time.time() < self.begun + LIMIT:
            yield from self.until(lambda: not self.runners())
            known = yield from self._ask_status()
            if known and self._state in ENDED:
                return
            if known and person and self._rollout:
                words = (f"rollout={self._rollout}", "dry_run=false", "wait=true")
                yield from self.workflow("rollout_pop", *words)
                person = False
            elif not (known and self._state == "none"):
                yield from self.workflow("recover_orphans")
            elif not self.breaking:
                return
            yield from self.pause(SWEEP_SECONDS)

    def _ask_status(self) -> Ticks:
        """Whether the rollout's status could be read."""
        self._asked += 1
        file = self.home / f"status-{self._asked}.json"
        yield from self.edgetune("rollout_status", "pop=lab1", result=file)
        found = read_result(file)
        if found is not None:
            self._status = {**(found["rollouts"] or [{}])[-1], "text": found["text"]}
        return found is not None

    def _calm_down(self) -> Ticks:
        """Until actions without a workflow have ended, and every host serves that should."""
        yield from self.at_rest()
        yield from self._ask_status()
        expected = set(HOSTS) - set(self._end().quarantined)
        yield from self.until(lambda: expected <= self.watch.sights[-1].ready(), SETTLE_SECONDS)

    def _sights(self, calm: float) -> list[Sight]:
        return [sight for sight in self.watch.sights if sight.time <= calm]

    def _ask_again(self) -> Ticks:
        """What has ended already is asked for again."""
        yield from self.edgetune("recover_orphans")
        if self._state == "rolled_back" and not self._end().quarantined:
            yield from self.edgetune("roll_back_pop", f"rollout={self._rollout}")
        yield from self.pause(0.5)

    @property
    def _rollout(self) -> str:
        """Its id, empty if none was begun."""
        return str(self._status.get("rollout", ""))

    @property
    def _state(self) -> str:
        return str(self._status.get("state", "none"))

    def _end(self) -> End:
        state = self._state
        return End(
            outcome=state if state in (*ENDED, "none") else "stuck",
            tuning=self.schedule.tuning,
            wanted=_wanted(self.schedule.tuning),
            quarantined=tuple(self._status.get("quarantined") or ()),
            skipped=tuple(SKIPPED.findall(str(self._status.get("text", "")))),
        )

    def _audit(self, before: Looks, after: Looks, calm: float) -> Iterator[Broken]:
        sights = self._sights(calm)
        end = self._end()
        was = {name: state for name, state in before.items() if state is not None}
        test = round(len(HOSTS) * self.schedule.test_fraction)
        control = len(HOSTS) - test
        most = 2 * test + 3 * control if self.schedule.reboots else 0
        lost, unready = (lines_of(self.home / "lab" / name) for name in CLIENT_LOGS)
        if end.outcome == "stuck":
            yield Broken("whole", f"the rollout is {self._state} after {LIMIT:.0f} s")
        yield from auditor.requests(lost, unready, self.faults)
        yield from auditor.hosts(was, after, end, sights[-1])
        yield from auditor.min_in_service(sights, MUST_SERVE, self.faults)
        yield from auditor.stopped(sights, self.faults.stops)
        yield from auditor.service(sights, self.faults)
        yield from auditor.quarantines(end, self.faults)
        if self.faults.exchanged:
            yield from auditor.untouched(sights)
        yield from auditor.boots(sights, 3 if self.schedule.reboots else 0, most, self.faults)

    def _repeated(self, after: Looks, again: Looks, calm: float) -> Iterator[Broken]:
        if self._end().outcome != "stuck":
            yield from auditor.repeated(after, again, self.watch.sights, calm)


def why_not_counted(
    drawn: Collection[Fault], notes: Sequence[Note], rolling: Window, sights: Sequence[Sight]
) -> str:
    """Why a run says nothing, or empty; `sights` are those until hosts came to rest.

    Each fault has to meet the rollout, and one at least a time in which it had hosts in its
    hands. Where addresses were exchanged before it began, nothing is to be changed at all.
    """
    every, those_met = set(drawn), met(notes, rolling)
    if not those_met or those_met < every:
        return f"{len(those_met)} of {len(every)} faults met the rollout"
    if any(fault.before_the_plan for fault in every):
        return ""
    if not auditor.changed(sights):
        return "no host was changed"
    in_hand = auditor.under_way(sights, rolling.ends[1])
    if not any(in_hand and in_hand.meets(*note.during.ends) for note in notes if not note.said):
        return "no fault met a host that the rollout had in its hands"
    return ""


def _wanted(tuning: str) -> str:
    """The value that a tuning sets."""
    for folder in ("tunings", "lab/tunings"):
        file = CHECKOUT / folder / f"{tuning}.yaml"
        if file.exists():
            document = yaml.safe_load(file.read_text(encoding="utf-8"))
            return next(str(s["value"]) for s in document["settings"] if s["key"] == SETTING)
    raise LookupError(tuning)
