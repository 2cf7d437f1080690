# SPDX-License-Identifier: Apache-2.0
"""What a rollout is doing at one moment: lines made from its record; and rollouts of one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property

from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.batch import UNTOUCHED_STEPS, Batch
from edgetune.base.documents.head import CHANGES_HOSTS, ENDED, Head, Lent, Measuring, phases
from edgetune.base.documents.words import State
from edgetune.base.durations import DAY, roughly
from edgetune.base.names import several
from edgetune.base.sanitize import shortened
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.soak import Soak, waits_text
from edgetune.rollout.gates.pause import Pause, pauses_now
from edgetune.rollout.hosts.silencing import silence_text
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.heads import Unreadable
from edgetune.rollout.record.rollout import Record, out_of_service

_LONGEST_REASON = 100
# From how many seconds on a span is told in whole hours, and in whole minutes.
_UNITS = ((2 * DAY, 3600), (600, 60))


def lent_by(measuring: Measuring) -> list[tuple[str, Lent]]:
    """The hosts that were given other weights, with these."""
    return [(host, each) for host, each in measuring.lent.items() if each.given]


class Present:
    """A rollout ``now`` (epoch seconds); a part that cannot be read raises as ``Record`` does."""

    def __init__(self, record: Record, now: float) -> None:
        # It reads only; the type is that of an owner, which takes looks.
        self.opened = Rollout(record.context, record.head)
        self.head, self.now = record.head, now

    @cached_property
    def batches(self) -> list[Batch]:
        """All of its batches."""
        return list(self.opened.batches())

    @cached_property
    def soak(self) -> Soak:
        """Its present soak."""
        return Soak(self.opened)

    @property
    def interval(self) -> float:
        """Seconds between two samples, as planned."""
        return float(self.opened.plan.options.interval)

    @property
    def since(self) -> float:
        """When it entered its state, in epoch seconds."""
        head = self.head
        return phases(head.history, self.now)[-1].start if head.history else head.created

    @property
    def text(self) -> str:
        """In full: the batch at work with its hosts, or how far the soak is and its next look."""
        head = self.head
        if head.state == State.BASELINE and head.baseline:
            return f"baseline: {_of(self.now, *head.baseline)}"
        if head.state == State.SOAKING and head.soak:
            start = head.soak[0] - self.opened.plan.options.warmup
            soak = f"soak: {_of(self.now, start, head.soak[1])}; {self._next_look}"
            return "; ".join(filter(None, [soak, self.lent]))
        if head.state in CHANGES_HOSTS:
            return f"{spoken(head.state)}: {self._at_work(in_full=True)}"
        return "; ".join(filter(None, [spoken(head.state), self.lent]))

    @property
    def lent(self) -> str:
        """That the capacity of hosts is measured, and which of them weigh more meanwhile."""
        measuring = self.head.measuring
        if measuring is None:
            return ""
        lent = lent_by(measuring)
        weights = ", ".join(f"{host} weighs {it.given[-1]}, not {it.before}" for host, it in lent)
        left = self.head.left_measuring(self.now)
        what = "nobody goes on measuring its capacity" if left else "its capacity is measured"
        return "; ".join(filter(None, [what, weights]))

    @property
    def line(self) -> str:
        """In short: for how long, which batch with how many hosts out, or the next look.

        What is known of pauses of its PoP, and of a measurement that was left, is not told again.
        """
        head, state = self.head, f"{spoken(self.head.state)} for {self.lasts}"
        lent = "" if head.left_measuring(self.now) else self.lent
        if head.state == State.BASELINE:
            return self.text
        if head.state == State.SOAKING and head.soak:
            verdict = head.verdict if head.looks > head.first_look else None
            so_far = f"{spoken(verdict.verdict)} so far" if verdict else ""
            return "; ".join(filter(None, [f"{state}: {self._next_look}", so_far, lent]))
        if head.state in CHANGES_HOSTS:
            return f"{state}: {self._at_work(in_full=False)}"
        return "; ".join(filter(None, [state, lent]))

    @property
    def lasts(self) -> str:
        """For how long it is in its state."""
        return span(self.now - self.since)

    def _at_work(self, in_full: bool) -> str:
        numbers = self.opened.numbers(self.head.state)
        under_way = [b for b in self.batches if b.number in numbers and not b.finished]
        if not under_way:
            return "every batch is done"
        batch = under_way[0]
        name, wait = self.opened.name_of(batch), batch.wait
        if wait and in_full:
            return f"{name} waits: {wait.why}"
        if wait:
            why = "" if wait.paused else f": {shortened(wait.why, _LONGEST_REASON)}"
            return f"{name} waits for {span(self.now - wait.since)}{why}"
        text = f"{name}, {several(len(out_of_service(self.batches)), 'host')} out"
        silent = silence_text(batch)
        return "; ".join(filter(None, [f"{text}: {_steps(batch)}", silent])) if in_full else text

    @property
    def _next_look(self) -> str:
        if self.soak.has_decided:
            verdict = self.head.verdict
            return f"decided: {spoken(verdict.decision)}" if verdict else "decided"
        if self.soak.waits_for_ring:
            return waits_text(self.head.ring)
        end, of = self.soak.next_end, self.opened.plan.options.planned_looks
        number = self.head.looks - self.head.first_look + 1
        when = f"in {span(end - self.now)}" if end > self.now else "is due"
        return f"look {min(number, of)} of {of} {when}"


def spoken(word: str) -> str:
    """A word of a record as people say it."""
    return str(word).replace("_", " ")


def span(seconds: float) -> str:
    """About how long; a clock that was set back makes no span that is negative."""
    unit = next((unit for least, unit in _UNITS if seconds >= least), 1)
    return roughly(max(0, round(seconds) // unit * unit))


def _steps(batch: Batch) -> str:
    """Where its hosts stand that it has in hand."""
    hosts: dict[str, list[str]] = {}
    for name, host in batch.hosts.items():
        if host.step not in (*UNTOUCHED_STEPS, "done"):
            step = spoken(host.step) + " {}" + (f" ({host.awaited})" if host.awaited else "")
            hosts.setdefault(step, []).append(name)
    text = "; ".join(step.replace("{}", ", ".join(names), 1) for step, names in hosts.items())
    return text or ("checking hosts" if batch.at("done") else "beginning")


def _of(now: float, start: float, end: float) -> str:
    passed, whole = max(0, round(now - start)), round(end - start)
    return f"{roughly(min(passed, whole))} of {roughly(whole)}"


@dataclass
class Seen:
    """Rollouts, the oldest first, as they are ``now`` (epoch seconds).

    ``damaged`` are those that cannot be read, ``unknown`` has a sentence for what could not be
    asked, ``stopped`` says why everything is. ``filtered``: somebody asked for rollouts of a kind.
    ``more``: others that have ended were not read.
    """

    context: Context
    heads: Sequence[Head]
    damaged: Sequence[Unreadable]
    unknown: list[str]
    stopped: str
    filtered: bool
    more: bool = False
    now: float = field(default_factory=clock.wall)

    @cached_property
    def pauses(self) -> dict[str, dict[str, Pause]]:
        """Those that stand, by PoP and cause."""
        return pauses_now(self.context, self.heads)

    @property
    def open(self) -> list[Head]:
        """Those that have not ended, or left hosts in quarantine."""
        return [head for head in self.heads if head.state not in ENDED or head.quarantined]

    @property
    def closed(self) -> list[Head]:
        """Those of which nothing is left to do."""
        return [head for head in self.heads if head.state in ENDED and not head.quarantined]
