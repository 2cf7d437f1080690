# SPDX-License-Identifier: Apache-2.0
"""What became of a rollout so far, and what it is doing: lines made from its record alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edgetune.base import clock
from edgetune.base.documents.batch import Batch
from edgetune.base.documents.head import ENDED, Head, phases
from edgetune.base.documents.look import Look
from edgetune.base.documents.words import Decision, State
from edgetune.base.durations import roughly
from edgetune.base.errors import EdgetuneError
from edgetune.base.numbers import share
from edgetune.report.effects import caveat
from edgetune.rollout.context import Context
from edgetune.rollout.record.heads import living_heads
from edgetune.rollout.record.rollout import Record, out_of_service, read_rollout
from edgetune.rollout.status.present import Present, spoken
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
        self._present = Present(record, clock.wall())
        self._batches = self._present.batches

    @property
    def ended(self) -> bool:
        """Whether nothing of it goes on any more."""
        return self.head.state in (*ENDED, State.HELD)

    @property
    def rows(self) -> list[Row]:
        """What happened so far: states, looks, batches that are done or paused; oldest first."""
        rows = [*self.milestones, *self._done_batches(), *self._paused_batches()]
        return sorted(rows, key=lambda row: row.at)

    @property
    def milestones(self) -> list[Row]:
        """The states that it entered, and the looks at it; the oldest first."""
        return sorted([*self._states(), *self._looks()], key=lambda row: row.at)

    @property
    def present(self) -> str:
        """What is going on, with what has passed and what is expected."""
        return self._present.text

    @property
    def passed(self) -> str:
        """How long it lasts already, and about how long all of it takes; of a way back, its own."""
        head = self.head
        if head.state == State.ROLLING_BACK:
            begun = phases(head.history, clock.wall())[-1].start
            return roughly(round(max(0.0, clock.wall() - begun)))
        passed, planned = round(max(0.0, clock.wall() - head.created)), self._record.plan.seconds
        join = " of about " if passed <= planned else ", planned about "
        return f"{roughly(passed)}{join}{roughly(planned)}"

    @property
    def summary(self) -> str:
        """Its id, its state, and how many hosts are what, by the last batch of each."""
        counts: dict[str, int] = {}
        for told in self._last_told().values():
            counts[told] = counts.get(told, 0) + 1
        recap = ", ".join(f"{count} {told}" for told, count in counts.items())
        return f"{self.head.id}: {spoken(self.head.state)}; hosts: {recap or 'none touched'}"

    def _states(self) -> Iterator[Row]:
        for number, entry in enumerate(self.head.history):
            colour = _COLOURS.get(State(entry.state), PLAIN)
            if number == 0:
                yield Row(entry.at, spoken(entry.state), f"rollout {self.head.id}", colour)
            elif entry.by or entry.state != self.head.history[number - 1].state:
                yield Row(entry.at, spoken(entry.state), entry.reason, colour)
            elif entry.state == State.BASELINE:  # what it lets be seen, told from itself
                yield from self._prospect(entry.at)

    def _prospect(self, at: float) -> Iterator[Row]:
        baseline = self._record.baseline()
        power = baseline.power if baseline else None
        if power and power.effect is not None:
            text = f"lets a change of {power.metric} by {power.effect:.0%} or more be seen"
            yield Row(at, spoken(State.BASELINE), text)
        elif power:
            yield Row(at, spoken(State.BASELINE), f"shows no {power.metric}", WARNING)

    def _done_batches(self) -> Iterator[Row]:
        for batch in self._batches:
            if not batch.finished:
                continue
            told = [f"{', '.join(names)} {words}" for words, names in _by_end(batch).items()]
            at = max(host.at for host in batch.hosts.values())
            colour = WARNING if batch.at("skipped", "quarantined") else PLAIN
            yield Row(at, self._record.name_of(batch), "; ".join(told), colour)

    def _paused_batches(self) -> Iterator[Row]:
        """Those that a person has to let go on; what else a batch waits for ends by itself."""
        for batch in self._batches:
            if batch.wait and batch.wait.paused:
                text = f"waits: {batch.wait.why}"
                yield Row(batch.wait.since, self._record.name_of(batch), text, WARNING)

    def _looks(self) -> Iterator[Row]:
        for number in range(self.head.looks):
            look = self._record.look(number)
            if look.at is not None:
                yield Row(look.at, _look_name(look), _found(look), _DECIDED.get(look.decision, ""))

    def _last_told(self) -> Mapping[str, str]:
        told: dict[str, str] = {}
        for batch in self._batches:
            for words, names in _by_end(batch).items():
                told.update((name, words) for name in names)
        out = {*out_of_service(self._batches)}
        lost = {name for name, words in told.items() if words == "QUARANTINED"}
        return {**told, **dict.fromkeys(out - lost, "OUT OF SERVICE")}


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
            ids = [head.id for head in living_heads(self._context)]
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


def _look_name(look: Look) -> str:
    return f"look {look.moment.number} of {look.moment.of}" if look.moment else "look"


def _found(look: Look) -> str:
    """The verdict, what follows, and the effect on the metric that the tuning is for."""
    told = f"{spoken(look.verdict)}, {spoken(look.decision)}"
    return f"{told}: {_effect(look.metrics[0])}" if look.metrics else f"{told}: {look.reason}"


def _effect(effect: Any) -> str:
    ratio, part = effect.known_ratio, caveat(effect)
    if ratio is None:
        return f"{effect.metric} {part}"
    p = min(effect.p_better, effect.p_worse)
    told = f"{effect.metric} {share(ratio)}, p {p:.2g}"
    return f"{told} ({part})" if part else told
