# SPDX-License-Identifier: Apache-2.0
"""A lab that is looked at and broken at every tick, while a story is told on it."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable

from bench._mutation import Edit, copy_checkout
from bench.chaos.auditor import Broken, Faults, Window
from bench.chaos.keeper import Keeper, processes_of
from bench.chaos.schedule import Fault, Moment
from bench.chaos.sight import Event, Watch
from bench.chaos.site import Site

Ticks = Generator[None, None, Any]
"""What goes on a little at each turn."""

TICK = 0.05
LIMIT = 400.0  # a story that has not ended by then is stuck
SETTLE_SECONDS = 60.0
CLIENT_LOGS = ("client-lost.jsonl", "client-unready.jsonl")


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


@dataclass(frozen=True)
class Note:
    """A fault that came to pass, and is over; `said` is why it did nothing, or empty."""

    fault: Fault
    text: str
    during: Window
    said: str = ""


def met(notes: Sequence[Note], rolling: Window) -> set[Fault]:
    """Faults that broke something while the rollout was under way."""
    return {n.fault for n in notes if not n.said and rolling.meets(*n.during.ends)}


class Interrupted(Exception):
    """Somebody asked for the end."""


def in_lab(
    name: str, play: Callable[[Site], Report], keep: bool = False, edits: Sequence[Edit] = ()
) -> Report:
    """Play on the site of a lab of its own; files of a run that broke a promise are kept, and
    named.

    With `keep` its lab stays up, too. With `edits` the pack is a copy of the checkout that was
    changed so.
    """
    home = Path(tempfile.mkdtemp(prefix=name)).resolve()
    keeper = Keeper(home)
    site = Site(home)
    leave: tuple[str, ...] = ()
    try:
        if edits:
            site.checkout = copy_checkout(home / "pack", edits)
        report = play(site)
        if report.broken:
            report.files = str(home)
            leave = ("lab", "files") if keep else ("files",)
        return report
    finally:
        keeper.close(*leave)
        site.reap()


class Stage:
    """Where the faults that were ``drawn`` come to pass; all parts take turns at every tick.

    Interrupted when ``stop`` says so at a tick.
    """

    def __init__(self, drawn: Sequence[Fault], site: Site, stop: Callable[[], bool]) -> None:
        self.drawn = drawn
        self.home = site.home
        self.site = site
        self.faults = Faults()
        self.watch = Watch(site.home)
        self.begun = time.time()
        self.breaking: set[Fault] = set()
        self.notes: list[Note] = []
        self.events = [Event(self.begun, "start", "")]
        self._stop = stop
        self._workflows: list[subprocess.Popen[bytes]] = []
        self._ticked, self._stood_still = self.begun, 0.0

    def told(
        self, about: tuple[int, str, str], outcome: str, broken: Sequence[Broken], **more: Any
    ) -> Report:
        """The report; ``about`` is the seed, its scenario and its setup."""
        return Report(
            *about,
            faults=[note.text for note in sorted(self.notes, key=lambda note: note.during.start)],
            outcome=outcome,
            seconds=round(time.time() - self.begun, 1),
            broken=[self._since_begun(each) for each in broken],
            stood_still=round(self._stood_still, 1),
            load=round(os.getloadavg()[0], 1),
            **more,
        )

    def missed(self, during: Window) -> list[str]:
        """Faults that never came while it lasted, or met nothing."""
        return [str(fault) for fault in self.drawn if fault not in met(self.notes, during)]

    def runners(self) -> list[int]:
        """Processes of workflows under way."""
        return [process.pid for process in self._workflows if process.poll() is None]

    def look(self) -> None:
        """See what is so by now, and not only what was so at the last tick."""
        self.events += self.watch.poll(time.time())

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
        self.notes.append(Note(fault, text, Window(begun, now), said))

    def moment(self, moment: Moment) -> Ticks:
        """Wait for it; the host that it is about comes back."""
        while len(self._seen(moment.event)) < moment.number:
            yield
        event = self._seen(moment.event)[moment.number - 1]
        yield from self.until(lambda: time.time() >= event.time + moment.after)
        return event.host

    def _seen(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

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

    def at_rest(self) -> Ticks:
        """Until actions without a workflow have ended."""
        stays = self.site.stays
        yield from self.until(lambda: set(processes_of(self.home)) <= stays, SETTLE_SECONDS)

    def drive(self, parts: list[Ticks], story: Ticks) -> None:
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

    def workflow(self, *words: str) -> Ticks:
        """Run a workflow to its end, whatever that is."""
        process = self.site.edgetune(*words)
        self._workflows.append(process)
        yield from self.until(lambda: process.poll() is not None)

    def _since_begun(self, broken: Broken) -> dict[str, Any]:
        when = None if broken.when is None else round(broken.when - self.begun, 1)
        return {**asdict(broken), "when": when}


def _goes_on(task: Ticks) -> bool:
    try:
        next(task)
    except StopIteration:
        return False
    return True
