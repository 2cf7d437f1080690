# SPDX-License-Identifier: Apache-2.0
"""What the archive holds of a PoP, so that nobody has to read the archive to know.

edgetune.past.POP
"""

from __future__ import annotations

import json
from dataclasses import asdict, field
from typing import Any

from edgetune import PACK, RECORD_SCHEMA
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.capacity import CapacityRatio
from edgetune.base.documents.head import ID, LARGEST_EPOCH, Head, phases, runs
from edgetune.base.documents.reading import Number, check_is, decoded
from edgetune.base.documents.schema import read_versioned
from edgetune.base.documents.steps import StepsTaken, StepTaken
from edgetune.base.documents.words import State
from edgetune.base.people import actor


@dataclass(frozen=True)
class Tried:
    """A ``rollout`` that changed hosts and was taken back: ``at`` when (epoch seconds), and why."""

    rollout: str
    at: float
    why: str


@dataclass
class Judged:
    """What the newest look at the newest rollout that was looked at came to, which began ``at``
    (epoch seconds): the ``ratios`` and the ``headroom`` of ``look.Conclusion``."""

    at: float
    ratios: dict[str, Number] = field(default_factory=dict)
    headroom: dict[str, Number] = field(default_factory=dict)


@dataclass
class MeasuredCapacity:
    """What the last measurement of capacity came to, of the newest rollout with one, which began
    ``at`` (epoch seconds)."""

    at: float
    ratio: CapacityRatio


@dataclass
class Tally:
    """Rollouts of one tuning, counted: ``rollouts`` by state, the ``looks`` at all of them, and by
    ``VERDICT DECISION`` how many were ``judged`` so. ``entries`` and ``seconds`` are by state, how
    often it was entered and for how long. ``rollbacks`` are by who began them, ``steps`` by name.
    ``newest`` is None where none was looked at, ``capacity`` where that of none was measured."""

    rollouts: dict[str, int] = field(default_factory=dict)
    looks: int = 0
    judged: dict[str, int] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    rollbacks: dict[str, int] = field(default_factory=dict)
    steps: dict[str, StepTaken] = field(default_factory=dict)
    newest: Judged | None = None
    capacity: MeasuredCapacity | None = None

    def count(self, head: Head, now: float, times: int = 1) -> None:
        """Add a rollout as it is ``now`` (epoch seconds), or take it away (``times`` is -1)."""
        _add(self.rollouts, head.state, times)
        self.looks += times * head.looks
        for first, *_ in runs(head.history):
            if first.state == State.ROLLING_BACK:
                _add(self.rollbacks, actor(first.by), times)
        for phase in phases(head.history, now) if head.history else []:
            _add(self.entries, phase.state, times)
            _add(self.seconds, phase.state, times * max(0.0, phase.end - phase.start))
        verdict = head.verdict
        if verdict:
            _add(self.judged, f"{verdict.verdict} {verdict.decision}", times)
        if verdict and times > 0 and (self.newest is None or head.created >= self.newest.at):
            self.newest = Judged(head.created, {**verdict.ratios}, {**verdict.headroom})
        measured = head.capacity
        if measured and times > 0 and (self.capacity is None or head.created >= self.capacity.at):
            self.capacity = MeasuredCapacity(head.created, measured)

    def count_steps(self, taken: StepsTaken) -> None:
        """Add the steps of a rollout."""
        for name, more in taken.steps.items():
            step = self.steps.setdefault(name, StepTaken())
            step.count += more.count
            step.seconds = round(step.seconds + more.seconds, 3)
            for reason, times in more.failures.items():
                _add(step.failures, reason, times)


def _add(counts: dict[str, Any], name: str, number: float) -> None:
    total = counts.get(name, 0) + number
    counts[name] = round(total, 3) if isinstance(total, float) else total


@dataclass(frozen=True)
class Standing:
    """A ``tuning`` that stands since ``at`` (epoch seconds), and the ``ratio`` of test to control
    hosts that its last look found of its ``metric``.

    Metric and ratio are empty and None where nothing was compared. All of it is, where the record
    of the rollout cannot be read: then a tuning may stand by it.
    """

    tuning: str = ""
    at: float = 0.0
    metric: str = ""
    ratio: Number | None = None


@dataclass(frozen=True)
class Past:
    """Of the archived rollouts of a PoP: the largest ``epoch``, the id of the ``last`` that began,
    what stands by them (``standing``, by rollout), and by tuning the newest that was taken back
    (``tried``).

    It is written before what it tells of is moved. So it may tell of a rollout among the living,
    which then tells more.

    ``tallies`` count the copies in the archive by tuning, without those of rollouts that are
    ``moving``: these were to be moved when it was written, and nobody knows how far that went.
    Earlier versions kept no tallies (None).
    """

    epoch: int
    last: str
    standing: dict[str, Standing]
    tried: dict[str, Tried] = field(default_factory=dict)
    tallies: dict[str, Tally] | None = None
    moving: list[str] = field(default_factory=list)

    def document(self) -> str:
        """As it is stored."""
        return json.dumps({"schema": RECORD_SCHEMA, **asdict(self)})


def past_key(pop: str) -> str:
    """The key of a PoP's past; without a PoP what the keys of all begin with."""
    return f"{PACK}.past.{pop}"


def read_past(pop: str, text: str) -> Past:
    """A stored one; DamagedError if it is none, RefusedError if a later version wrote it."""
    key = past_key(pop)
    past = decoded(key, Past, read_versioned(key, text))
    named = ID.fullmatch(past.last)
    check_is(key, "epoch", 0 < past.epoch <= LARGEST_EPOCH, "is no epoch")
    check_is(key, "last", named is not None and named[1] == pop, "is no rollout of this PoP")
    return past
