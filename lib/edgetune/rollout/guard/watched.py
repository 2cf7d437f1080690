# SPDX-License-Identifier: Apache-2.0
"""A rollout as the guard sees it."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from functools import cached_property
from typing import Any, NamedTuple

from edgetune.base import clock
from edgetune.base.documents.batch import Batch
from edgetune.base.documents.head import ENDED, Head
from edgetune.base.documents.look import Look
from edgetune.base.documents.table import SampleTable
from edgetune.base.errors import SourceError
from edgetune.base.sanitize import one_line
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import stale_after
from edgetune.rollout.evidence.soak import Soak, usual_health
from edgetune.rollout.gates.pause import Pause
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record
from edgetune.rollout.status.present import Present

# How far back samples are read: this many seconds, and this many intervals.
_BACK, _INTERVALS_BACK = 600.0, 10
# By so many seconds a wall clock may move before moments are read anew.
_SHIFTED = 1.0


class Finding(NamedTuple):
    """What a check found: the payload of its trigger, and whether a rule acts on it."""

    payload: dict[str, Any]
    is_acted_on: bool


class Known(Rollout):
    """A rollout in one epoch, over many looks of the guard: plan, baseline and the newest look do
    not change in it, so each is read once; the head and the context are those of the last look.

    Batches are listed at each look, and decoded where their text is another one.
    """

    _health: Mapping[str, float] | None = None
    _look: tuple[int, Look] | None = None

    def __init__(self, context: Context, head: Head) -> None:
        super().__init__(context, head)
        self._decoded: dict[int, tuple[str | None, Batch, float]] = {}

    @cached_property
    def soak(self) -> Soak:
        """With the looks that were foreseen before; whoever writes one down takes a new epoch."""
        return Soak(self)

    @property
    def health(self) -> Mapping[str, float] | None:
        """Each host's usual health check in ms; None before the baseline is kept."""
        if self._health is None:
            baseline = self.baseline()
            self._health = baseline.health if baseline else None
        return self._health

    def _batch(self, number: int, text: str | None) -> Batch:
        if number in self._decoded:
            known, batch, shift = self._decoded[number]
            # Its moments are those of the present wall clock.
            if known == text and abs(clock.shift_since(batch.clock) - shift) < _SHIFTED:
                return batch
        batch = super()._batch(number, text)
        self._decoded[number] = text, batch, clock.shift_since(batch.clock)
        return batch

    def look(self, number: int) -> Look:
        """As ``Record`` does."""
        if self._look is None or self._look[0] != number:
            self._look = number, super().look(number)
        return self._look[1]


Kept = MutableMapping[tuple[str, int], Known]
"""By rollout and epoch."""


class Watched(Present):
    """The last rollout of a PoP, and what checks need of it; each part is read once.

    ``kept`` has what is known of rollouts from earlier looks, ``pauses`` are those of its PoP,
    ``stopped`` says why everything is, ``now`` is the time of this look in epoch seconds. ``idle``
    is for how long its owner made no step, None where that is not known yet.
    """

    opened: Known

    def __init__(
        self,
        context: Context,
        head: Head,
        now: float,
        kept: Kept,
        pauses: Mapping[str, Pause],
        stopped: str,
        idle: float | None = None,
    ) -> None:
        super().__init__(Record(context, head), now)
        self.opened = kept.setdefault((head.id, head.epoch), Known(context, head))
        self.opened.context, self.opened.head = context, head
        self.pauses, self.stopped, self.idle = pauses, stopped, idle

    @property
    def under_way(self) -> bool:
        """Whether it has not ended."""
        return self.head.state not in ENDED

    @property
    def usual(self) -> Mapping[str, float]:
        """Each host's usual health check, in ms."""
        health = self.opened.health
        return usual_health(self.opened) if health is None else health

    @property
    def samples(self) -> SampleTable:
        """Those of the last ten minutes, or ten intervals, oldest first.

        None where a source that keeps them is away, which ``unknown`` tells.
        """
        return self._samples[0]

    @property
    def unknown(self) -> str:
        """Why the source does not tell its samples, or nothing."""
        return self._samples[1]

    @cached_property
    def _samples(self) -> tuple[SampleTable, str]:
        back = max(_BACK, _INTERVALS_BACK * self.interval)
        try:
            read = self.opened.context.samples.window
            return read(self.head.pop, self.now - back, self.now), ""
        except SourceError as error:
            return SampleTable(), str(error)

    @property
    def stale_after(self) -> float:
        """How many seconds without a sample are too many."""
        return stale_after(self.interval)

    def last(self, seconds: float) -> SampleTable:
        """Those of the seconds before the newest one, which has the clock of who sampled, not ours.

        None once they are stale.
        """
        newest = self.samples.time[-1] if self.samples else -math.inf
        if newest < self.now - self.stale_after:
            return SampleTable()
        return self.samples.between(newest - seconds, math.inf)

    def is_paused(self, cause: str) -> bool:
        """Whether its PoP is paused for this cause."""
        return cause in self.pauses and self.pauses[cause].paused

    def finding(
        self, reason: str, mark: str = "", is_acted_on: bool = True, **more: object
    ) -> Finding:
        """What was found; its id is the same until the epoch or ``mark`` changes."""
        head = self.head
        payload = {
            "id": f"{head.id}-{head.epoch}" + (f"-{mark}" if mark else ""),
            "rollout": head.id,
            "epoch": head.epoch,
            "pop": head.pop,
            "channel": head.channel,
            "reason": one_line(reason),
            **more,
        }
        return Finding(payload, is_acted_on)
