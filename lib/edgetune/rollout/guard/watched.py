# SPDX-License-Identifier: Apache-2.0
"""A rollout as the guard sees it; of several guards one looks at a time, and people are told a
thing once, whichever tells them.

StackStorm runs a sensor in each of its sensor containers, unless they are partitioned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from functools import cached_property
from typing import Any, NamedTuple, Union

from edgetune.base import clock
from edgetune.base.documents.head import ENDED, Head
from edgetune.base.documents.table import SampleTable
from edgetune.base.errors import SourceError
from edgetune.base.sanitize import one_line
from edgetune.net.databases import SCHEME, open_redis, redis_errors
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import stale_after
from edgetune.rollout.evidence.soak import Soak
from edgetune.rollout.gates.pause import Pause
from edgetune.rollout.record.rollout import Record
from edgetune.rollout.status.present import Present
from edgetune.site.config import Config

TURN = 75
"""Seconds for which a guard that looks keeps its turn, and looks every 30 s."""
AN_HOUR = 3600
"""Seconds in which people are told a thing once."""
_TURN_KEY = "edgetune:guard:turn"


def open_turns(config: Config, alone: Turns) -> Turns:
    """Those of a configuration's ``coordination``; beside a SQLite file a guard is ``alone``."""
    return alone if config.coordination.startswith(SCHEME) else RedisTurns(open_redis(config))


class Alone:
    """Of a guard that has no other beside it."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def has(self, guard: str) -> bool:
        """Whether it is this guard's turn to look: always."""
        return True

    def was_told(self, what: str) -> bool:
        """Whether people were told that within the hour."""
        now = clock.wall()
        self._told = {key: at for key, at in self._told.items() if at > now - AN_HOUR}
        return what in self._told

    def tell(self, what: str) -> None:
        """Keep that people were told, for an hour from when they were first."""
        self._told.setdefault(what, clock.wall())

    def give_up(self, guard: str) -> None:
        """Let another look at once: there is none."""


class RedisTurns:
    """What guards agree on, in Redis, which forgets by itself; every call raises StoreError when
    Redis fails. A guard keeps its turn by asking for it again in time."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def has(self, guard: str) -> bool:
        with redis_errors(_TURN_KEY):
            if self._client.set(_TURN_KEY, guard, nx=True, ex=TURN):
                return True
            return bool(
                self._client.get(_TURN_KEY) == guard and self._client.expire(_TURN_KEY, TURN)
            )

    def was_told(self, what: str) -> bool:
        with redis_errors(_told_key(what)):
            return bool(self._client.exists(_told_key(what)))

    def tell(self, what: str) -> None:
        with redis_errors(_told_key(what)):
            self._client.set(_told_key(what), "1", nx=True, ex=AN_HOUR)

    def give_up(self, guard: str) -> None:
        with redis_errors(_TURN_KEY):
            if self._client.get(_TURN_KEY) == guard:
                self._client.delete(_TURN_KEY)


Turns = Union[Alone, RedisTurns]


def _told_key(what: str) -> str:
    return f"edgetune:told:{what}"


Soaks = MutableMapping[tuple[str, int], Soak]

# How far back samples are read: this many seconds, and this many intervals.
_BACK, _INTERVALS_BACK = 600.0, 10


class Finding(NamedTuple):
    """What a check found: the payload of its trigger, and whether a rule acts on it."""

    payload: dict[str, Any]
    is_acted_on: bool


class Watched(Present):
    """The last rollout of a PoP, and what checks need of it; each part is read once.

    ``soaks`` keeps what was judged before by rollout and epoch, ``pauses`` are those of its PoP,
    ``stopped`` says why everything is, ``now`` is the time of this look in epoch seconds.
    """

    def __init__(
        self,
        context: Context,
        head: Head,
        now: float,
        soaks: Soaks,
        pauses: Mapping[str, Pause],
        stopped: str,
    ) -> None:
        super().__init__(Record(context, head), now)
        self._soaks, self.pauses, self.stopped = soaks, pauses, stopped

    @property
    def under_way(self) -> bool:
        """Whether it has not ended."""
        return self.head.state not in ENDED

    @cached_property
    def soak(self) -> Soak:
        """With the looks that were foreseen before; whoever writes one down takes a new epoch."""
        return self._soaks.setdefault((self.head.id, self.head.epoch), Soak(self.opened))

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
