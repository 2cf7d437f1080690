# SPDX-License-Identifier: Apache-2.0
"""One seed: a rollout under faults, somebody who picks it up again, and the audit of it all."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Optional

import yaml

from bench._mutation import Edit, copy_checkout
from bench.chaos import auditor
from bench.chaos.auditor import Broken, End, Faults, Window
from bench.chaos.breakage import Ticks, carry_out
from bench.chaos.counting import Note, met, why_not_counted
from bench.chaos.keeper import Keeper, processes_of
from bench.chaos.schedule import HOSTS, MUST_SERVE, Fault, Moment, Schedule
from bench.chaos.sight import SETTING, Event, HostState, Sight, Watch, lines_of, look_at_all
from bench.chaos.site import Site, read_result
from lab import CHECKOUT
from lab import pop as lab

Looks = Mapping[str, Optional[HostState]]

TICK = 0.05
LIMIT = 400.0  # a rollout that has not ended by then is stuck
SETTLE_SECONDS = 60.0
SWEEP_SECONDS = 2.0  # between two calls of recover_orphans
ENDED = ("complete", "rolled_back", "held")
NOT_BACK = ("complete", "held")
CLIENT_LOGS = ("client-lost.jsonl", "client-unready.jsonl")
SKIPPED = re.compile(r"\b(e\d\d\d)(?=[^:;]*, skipped)")
# Four hosts can be drawn in four or six ways: hence the alphas.
OPTIONS = ("baseline=6", "soak=14", "interval=2", "warmup=1", "alpha_benefit=0.3", "alpha_harm=0.3")
REAL = ("dry_run=false", "wait=true", *OPTIONS)


@dataclass
class Report:
    """What a run of a seed came to; times in seconds since its start.

    `missed` faults never came, or met nothing. A run counts only if `because` is empty: its
    rollout changed hosts, each fault met it, and one at least met hosts that it had in its hands.
    `commit` is the one that was run. `stood_still` is the longest time between two looks of the
    harness, `load` the machine's load average at the end: on a machine that does not keep up,
    requests wait longer than the load balancer lets them.
    """

    seed: int
    scenario: str
    setup: str
    faults: list[str]
    missed: list[str]
    outcome: str
    seconds: float
    broken: list[dict[str, Any]]
    because: str = ""
    commit: str = ""
    stood_still: float = 0.0
    load: float = 0.0
    files: str = ""

    @property
    def counts(self) -> bool:
        """Whether it says anything that no promise was broken."""
        return not self.because


class Interrupted(Exception):
    """Somebody asked for the end."""


def run_seed(
    schedule: Schedule,
    keep: bool = False,
    stop: Callable[[], bool] = lambda: False,
    edits: Sequence[Edit] = (),
) -> Report:
    """Run it in a lab of its own; files of a run that broke a promise are kept, and named.

    With `keep` its lab stays up, too. `stop` is asked at every tick: Interrupted when it says so.
    With `edits` the pack is a copy of the checkout that was changed so.
    """
    home = Path(tempfile.mkdtemp(prefix=f"chaos-{schedule.seed}-")).resolve()
    keeper = Keeper(home)
    site = Site(home)
    leave: tuple[str, ...] = ()
    try:
        if edits:
            site.checkout = copy_checkout(home / "pack", edits)
        site.up(len(HOSTS), schedule.coordination, stays=keep)
        report = Run(schedule, site, stop).report()
        if report.broken:
            report.files = str(home)
            leave = ("lab", "files") if keep else ("files",)
        return report
    finally:
        keeper.close(*leave)
        site.reap()


class Run:
    """One rollout under the faults of a schedule; all its parts take turns at every tick."""

    def __init__(self, schedule: Schedule, site: Site, stop: Callable[[], bool]) -> None:
        self.schedule = schedule
        self.home = site.home
        self.site = site
        self.faults = Faults()
        self.watch = Watch(site.home)
        self.begun = time.time()
        self.breaking: set[Fault] = set()
        self._stop = stop
        self._events = [Event(self.begun, "start", "")]
        self._workflows: list[subprocess.Popen[bytes]] = []
        self._notes: list[Note] = []
        self._asked = 0
        self._ticked, self._stood_still = self.begun, 0.0
        self._rolling = Window(self.begun)
        self._status: dict[str, Any] = {}

    def report(self) -> Report:
        """Run to the end, audit, and say what came of it."""
        before = look_at_all(self.home)
        self.watch.poll(time.time())
        parts = [carry_out(self, fault) for fault in self.schedule.faults]
        parts += [self._by_hand(self.schedule.by_hand)] if self.schedule.by_hand else []
        self._rolling = Window(time.time())
        self._drive(parts, self._story())
        self._rolling.end = time.time()
        lab.heal(self.home)
        self._drive([], self._calm_down())
        calm = time.time()
        after = look_at_all(self.home)
        self._drive([], self._ask_again())
        again = look_at_all(self.home)
        broken = [*self._audit(before, after, calm), *self._repeated(after, again, calm)]
        return Report(
            seed=self.schedule.seed,
            scenario=self.schedule.scenario,
            setup=f"{self.schedule.coordination}, {self.schedule.resume}",
            faults=[note.text for note in sorted(self._notes, key=lambda note: note.during.start)],
            missed=[
                str(f) for f in self.schedule.faults if f not in met(self._notes, self._rolling)
            ],
            outcome=self._end().outcome,
            seconds=round(time.time() - self.begun, 1),
            broken=[self._told(each) for each in broken],
            because=why_not_counted(
                self.schedule.faults, self._notes, self._rolling, self._sights(calm)
            ),
            stood_still=round(self._stood_still, 1),
            load=round(os.getloadavg()[0], 1),
        )

    def runners(self) -> list[int]:
        """Processes of workflows under way."""
        return [process.pid for process in self._workflows if process.poll() is None]

    def look(self) -> None:
        """See what is so by now, and not only what was so at the last tick."""
        self._events += self.watch.poll(time.time())

    def admin(self, host: str) -> str:
        """Its server's administrative state."""
        return self.watch.sights[-1].servers[host][0]

    def is_up(self, host: str) -> bool:
        """Whether the load balancer's check of it passes."""
        return self.watch.sights[-1].servers[host][1]

    def boots(self, host: str) -> int:
        """How often it has booted."""
        return self.watch.sights[-1].boots[host]

    def note(self, fault: Fault, target: str, begun: float, said: str) -> None:
        """Write down that a fault came to pass, and that it is over."""
        now = time.time()
        times = f"{begun - self.begun:.1f}..{now - self.begun:.1f} s"
        text = f"{fault.kind} {target} {times}{': ' if said else ''}{said}"
        self._notes.append(Note(fault, text, Window(begun, now), said))

    def moment(self, moment: Moment) -> Ticks:
        """Wait for it; the host that it is about comes back."""
        while len(self._seen(moment.event)) < moment.number:
            yield
        event = self._seen(moment.event)[moment.number - 1]
        yield from self.until(lambda: time.time() >= event.time + moment.after)
        return event.host

    def _seen(self, kind: str) -> list[Event]:
        return [event for event in self._events if event.kind == kind]

    def pause(self, seconds: float) -> Ticks:
        """Wait."""
        end = time.time() + seconds
        yield from self.until(lambda: time.time() >= end)

    def until(self, condition: Callable[[], bool], seconds: float = LIMIT) -> Ticks:
        """Wait for something, but not for ever."""
        end = time.time() + seconds
        while not condition() and time.time() < end:
            yield

    def edgetune(self, *words: str, result: Path | None = None) -> Ticks:
        """Run an action to its end."""
        process = self.site.edgetune(*words, result=result)
        yield from self.until(lambda: process.poll() is not None)

    def _drive(self, parts: list[Ticks], story: Ticks) -> None:
        """Until the story and what is broken have ended; moments that never came are dropped."""
        telling = True
        while telling or self.breaking:
            self._tick()
            parts = [part for part in parts if _goes_on(part)]
            telling = telling and _goes_on(story)

    def _tick(self) -> None:
        if self._stop():
            raise Interrupted
        now = time.time()
        self._ticked, self._stood_still = now, max(self._stood_still, now - self._ticked)
        self.look()
        time.sleep(TICK)

    def _workflow(self, *words: str) -> Ticks:
        """Run a workflow to its end, whatever that is."""
        process = self.site.edgetune(*words)
        self._workflows.append(process)
        yield from self.until(lambda: process.poll() is not None)

    def _story(self) -> Ticks:
        """The rollout, and what becomes of it."""
        schedule = self.schedule
        words = ("pop=lab1", f"tuning={schedule.tuning}", f"test_fraction={schedule.test_fraction}")
        for _ in range(2):  # a fault may have kept it from beginning at all
            if not self._rollout:
                yield from self._workflow("rollout_pop", *words, *REAL)
                yield from self._settle()
        if schedule.scenario in ("interrupted", "returned") and self._state in NOT_BACK:
            yield from self._workflow("roll_back_pop", f"rollout={self._rollout}")
            yield from self._settle()

    def _by_hand(self, moment: Moment) -> Ticks:
        yield from self.moment(moment)
        known = False
        while not known:  # a store that is away comes back
            known = yield from self._ask_status()
        if self._rollout:
            yield from self._workflow("roll_back_pop", f"rollout={self._rollout}")

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
                yield from self._workflow("rollout_pop", *words)
                person = False
            elif not (known and self._state == "none"):
                yield from self._workflow("recover_orphans")
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
        own = self.site.redis_pid
        yield from self.until(lambda: set(processes_of(self.home)) <= {own}, SETTLE_SECONDS)
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

    def _told(self, broken: Broken) -> dict[str, Any]:
        when = None if broken.when is None else round(broken.when - self.begun, 1)
        return {**asdict(broken), "when": when}


def _goes_on(task: Ticks) -> bool:
    try:
        next(task)
    except StopIteration:
        return False
    return True


def _wanted(tuning: str) -> str:
    """The value that a tuning sets."""
    for folder in ("tunings", "lab/tunings"):
        file = CHECKOUT / folder / f"{tuning}.yaml"
        if file.exists():
            document = yaml.safe_load(file.read_text(encoding="utf-8"))
            return next(str(s["value"]) for s in document["settings"] if s["key"] == SETTING)
    raise LookupError(tuning)
