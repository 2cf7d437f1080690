# SPDX-License-Identifier: Apache-2.0
"""The states that a rollout went through, from its history."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import Entry
from edgetune.base.documents.words import State

_STILL = (State.HELD, State.COMPLETE, State.ROLLED_BACK, State.HANDED_OVER)


@dataclass(frozen=True)
class Phase:
    """A part of a rollout: the state it was in, from when to when."""

    state: str
    start: float
    end: float


def phases(history: Sequence[Entry], now: float) -> list[Phase]:
    """All of them in order. One in which nothing happens any more has no length."""
    begun = [own[0] for own in runs(history)]
    newest = begun[-1]
    last = newest.at if newest.state in _STILL else max(now, newest.at)
    ends = [*(entry.at for entry in begun[1:]), last]
    return [Phase(entry.state, entry.at, end) for entry, end in zip(begun, ends)]


def runs(history: Sequence[Entry]) -> list[list[Entry]]:
    """The entries of each stay in a state."""
    return [list(own) for _, own in groupby(history, key=lambda entry: entry.state)]
