# SPDX-License-Identifier: Apache-2.0
"""What became of a rollout so far, and what it is doing: lines made from its record alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edgetune.documents.batch import UNTOUCHED_STEPS, Batch
from edgetune.documents.head import CHANGES_HOSTS, ENDED, Head
from edgetune.documents.look import Look
from edgetune.documents.words import Decision, State
from edgetune.durations import roughly
from edgetune.errors import EdgetuneError
from edgetune.report.phases import phases
from edgetune.rollout.context import Context
from edgetune.rollout.heads import all_heads
from edgetune.rollout.lease import Rollout
from edgetune.rollout.record import Record, read_rollout
from edgetune.rollout.soak import Soak
from edgetune.rollout.steps.rollout_status import out_of_service
from lab.runner.screen import BAD, GOOD, PLAIN, WARNING

__all__ = ["Row", "Story", "StoryTeller"]

_COLOURS = {
    State.COMPLETE: GOOD,
    State.HELD: WARNING,
    State.ROLLING_BACK: BAD,
    State.ROLLED_BACK: WARNING,
}
_DECIDED = {Decision.PROMOTE: GOOD, Decision.HOLD: WARNING, Decision.ROLL_BACK: BAD}
_DONE = {"change": "changed", "sham": "rebooted only", "restore": "taken back"}


@dataclass(frozen=True)
class Row:
    """One thing that happened: when (epoch seconds), the words in front, and what."""

    at: float
    what: str
    text: str
    colour: str = PLAIN


class Story:
    """One rollout at one moment."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.head: Head = record.head
        self._batches = list(record.batches())

    @property
    def ended(self) -> bool:
        """Whether nothing of it goes on any more."""
        return self.head.state in (*ENDED, State.HELD)

    @property
    def rows(self) -> list[Row]:
        """What happened so far: states, batches that are done, looks; the oldest first."""
        return sorted([*self.milestones, *self._done_batches()], key=lambda row: row.at)

    @property
    def milestones(self) -> list[Row]:
        """The states that it entered, and the looks at it; the oldest first."""
        return sorted([*self._states(), *self._looks()], key=lambda row: row.at)

    @property
    def present(self) -> str:
        """What is going on, with what has passed and what is expected."""
        head, now = self.head, time.time()
        if head.state == State.BASELINE and head.baseline:
            return f"baseline: {_of(now, *head.baseline)}"
        if head.state == State.SOAKING and head.soak:
            start = head.soak[0] - self._record.plan.options.warmup
            return f"soak: {_of(now, start, head.soak[1])}; {self._next_look(now)}"
        if head.state in CHANGES_HOSTS:
            return f"{_words(head.state)}: {self._batch_at_work()}"
        return _words(head.state)

    @property
    def passed(self) -> str:
        """How long it lasts already, and about how long all of it takes; of a way back, its own."""
        head = self.head
        if head.state == State.ROLLING_BACK:
            begun = phases(head.history, time.time())[-1].start
            return roughly(round(max(0.0, time.time() - begun)))
        passed = roughly(round(max(0.0, time.time() - head.created)))
        return f"{passed} of about {roughly(self._record.plan.seconds)}"

    @property
    def summary(self) -> str:
        """Its id, its state, and how many hosts are what, by the last batch of each."""
        counts: dict[str, int] = {}
        for told in self._last_told().values():
            counts[told] = counts.get(told, 0) + 1
        recap = ", ".join(f"{count} {told}" for told, count in counts.items())
        return f"{self.head.id}: {_words(self.head.state)}; hosts: {recap or 'none touched'}"

    def _states(self) -> Iterator[Row]:
        for number, entry in enumerate(self.head.history):
            colour = _COLOURS.get(State(entry.state), PLAIN)
            if number == 0:
                yield Row(entry.at, _words(entry.state), f"rollout {self.head.id}", colour)
            elif entry.by or entry.state != self.head.history[number - 1].state:
                yield Row(entry.at, _words(entry.state), entry.reason, colour)
            elif entry.state == State.BASELINE:  # what it lets be seen, told from itself
                yield from self._prospect(entry.at)

    def _prospect(self, at: float) -> Iterator[Row]:
        baseline = self._record.baseline()
        power = baseline.power if baseline else None
        if power and power.effect is not None:
            text = f"lets a change of {power.metric} by {power.effect:.0%} or more be seen"
            yield Row(at, _words(State.BASELINE), text)
        elif power:
            yield Row(at, _words(State.BASELINE), f"shows no {power.metric}", WARNING)

    def _done_batches(self) -> Iterator[Row]:
        for batch in self._batches:
            if not batch.finished:
                continue
            told = [f"{', '.join(names)} {words}" for words, names in _by_end(batch).items()]
            at = max(host.at for host in batch.hosts.values())
            colour = WARNING if batch.at("skipped", "quarantined") else PLAIN
            yield Row(at, self._name(batch), "; ".join(told), colour)

    def _looks(self) -> Iterator[Row]:
        for number in range(self.head.looks):
            look = self._record.look(number)
            if look.at is not None:
                yield Row(look.at, _look_name(look), _found(look), _DECIDED.get(look.decision, ""))

    def _name(self, batch: Batch) -> str:
        """Counted in the state that takes it, as people count."""
        for state in CHANGES_HOSTS:
            numbers = self._record.numbers(state)
            if batch.number in numbers:
                return f"batch {batch.number - numbers.start + 1} of {len(numbers)}"
        return f"batch {batch.number + 1}"

    def _batch_at_work(self) -> str:
        numbers = self._record.numbers(self.head.state)
        under_way = [b for b in self._batches if b.number in numbers and not b.finished]
        if not under_way:
            return "every batch is done"
        batch = under_way[0]
        if batch.wait:
            return f"{self._name(batch)} waits: {batch.wait.why}"
        steps = _by_step(batch)
        out = out_of_service(self._batches)
        told = "; ".join(f"{_words(step)} {', '.join(names)}" for step, names in steps.items())
        hosts = "1 host" if len(out) == 1 else f"{len(out)} hosts"
        quiet = "checking hosts" if batch.at("done") else "beginning"
        return f"{self._name(batch)}, {hosts} out: {told or quiet}"

    def _next_look(self, now: float) -> str:
        # It reads only; the type is that of who takes looks.
        end = Soak(Rollout(self._record.context, self.head)).next_end
        number = self.head.looks - self.head.first_look + 1
        of = self._record.plan.options.planned_looks
        when = f"in {roughly(round(end - now))}" if end > now else "is due"
        return f"look {min(number, of)} of {of} {when}"

    def _last_told(self) -> Mapping[str, str]:
        told: dict[str, str] = {}
        for batch in self._batches:
            for words, names in _by_end(batch).items():
                told.update((name, words) for name in names)
        return told


class StoryTeller:
    """Opens the stories of rollouts, as often as they are asked for."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def open(self, rollout: str) -> Story | None:
        """The story of a rollout as it is now, None while its record cannot be read."""
        try:
            return Story(read_rollout(self._context, rollout))
        except EdgetuneError:
            return None

    def all(self) -> Iterator[Story]:
        """Those of all rollouts whose records can be read, the oldest first."""
        try:
            ids = [head.id for head in all_heads(self._context)]
        except EdgetuneError:
            return
        yield from filter(None, map(self.open, ids))

    @cached_property
    def _context(self) -> Context:
        return Context(self._config)


def _by_end(batch: Batch) -> dict[str, list[str]]:
    """Hosts that are through, by what became of them."""
    ends = {"done": _DONE[batch.batch_type], "skipped": "skipped", "quarantined": "QUARANTINED"}
    found = {words: batch.at(step) for step, words in ends.items()}
    return {words: names for words, names in found.items() if names}


def _by_step(batch: Batch) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, host in batch.hosts.items():
        if host.step not in (*UNTOUCHED_STEPS, "done"):
            found.setdefault(host.step, []).append(name)
    return found


def _look_name(look: Look) -> str:
    return f"look {look.moment.number} of {look.moment.of}" if look.moment else "look"


def _found(look: Look) -> str:
    """The verdict, what follows, and the effect on the metric that the tuning is for."""
    told = f"{_words(look.verdict)}, {_words(look.decision)}"
    return f"{told}: {_effect(look.metrics[0])}" if look.metrics else f"{told}: {look.reason}"


def _effect(effect: Any) -> str:
    ratio, p = float(effect.ratio), min(effect.p_better, effect.p_worse)
    way = "lower" if ratio < 1 else "higher"
    return f"{effect.metric} {abs(1 - ratio):.0%} {way}, p {p:.2g}"


def _of(now: float, start: float, end: float) -> str:
    passed, whole = max(0, round(now - start)), round(end - start)
    return f"{roughly(min(passed, whole))} of {roughly(whole)}"


def _words(name: str) -> str:
    return str(name).replace("_", " ")
