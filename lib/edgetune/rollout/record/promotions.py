# SPDX-License-Identifier: Apache-2.0
"""Since when each tuning stands on a PoP, until when it stood, and which can be retired."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress

from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.effect import effect_key, read_effect
from edgetune.base.documents.head import Head, runs
from edgetune.base.documents.past import Tried, past_key, read_past
from edgetune.base.documents.words import State
from edgetune.base.durations import DAY
from edgetune.base.errors import RefusedError
from edgetune.rollout.context import Context
from edgetune.rollout.store.records import value_of

_STANDS_FROM = (State.PROMOTING, "complete")
_NOT_RETIRED = (State.PROMOTING, State.HANDING_OVER, State.HANDED_OVER)
"""States in which a tuning stands, and cannot be retired."""
_LEAST = DAY
RECENT = 31.0 * DAY
"""Seconds for which a tuning that was taken back is told."""


@dataclass(frozen=True)
class Promotion:
    """A tuning on all hosts of a PoP ``since`` it was promoted, ``until`` it was taken back (inf:
    it stands), in epoch seconds."""

    tuning: str
    pop: str
    since: float
    until: float


def promotions_of(context: Context, living: Sequence[Head], gone: bool = True) -> list[Promotion]:
    """The newest of each tuning on each PoP, in the order in which they were promoted.

    What cannot be read is left out. So is a rollout that was taken back within a day, as it was
    held rather than promoted, or longer than RECENT ago. Each that is ``gone`` is one request more:
    without these the archive is asked once.
    """
    # Of a rollout that was taken up again, the living tells more.
    every = {**dict(_archived(context, gone)), **{head.id: _of_head(head) for head in living}}
    newest: dict[tuple[str, str], Promotion] = {}
    for own in sorted(filter(None, every.values()), key=lambda own: own.since):
        if own.until - own.since >= _LEAST:
            newest[own.tuning, own.pop] = own
    return sorted(newest.values(), key=lambda own: own.since)


def retirable(context: Context, living: Sequence[Head]) -> list[Promotion]:
    """What stands and can be retired, in the order in which it was promoted."""
    kept = {(head.tuning, head.pop) for head in living if head.state in _NOT_RETIRED}
    # The archive remembers PoPs that the inventory has no more.
    pops = {*context.known_inventory.pop_names()}
    return [
        own
        for own in promotions_of(context, living, gone=False)
        if own.until == math.inf and own.pop in pops and (own.tuning, own.pop) not in kept
    ]


def _archived(context: Context, gone: bool) -> Iterator[tuple[str, Promotion]]:
    """Each with its rollout."""
    start, since = past_key(""), clock.wall() - RECENT
    for key, text in context.store.list(start).items():
        pop = key[len(start) :]
        with suppress(RefusedError):
            past = read_past(pop, text)
            for rollout, own in past.standing.items():
                yield rollout, Promotion(own.tuning, pop, own.at, math.inf)
            for tuning, back in past.tried.items():
                if gone and back.at >= since:
                    yield from _taken_back(context, pop, tuning, back)


def _taken_back(
    context: Context, pop: str, tuning: str, back: Tried
) -> Iterator[tuple[str, Promotion]]:
    key = effect_key(tuning, back.rollout)
    text = value_of(context.store, key)
    if text is not None:
        with suppress(RefusedError):
            # The look that promoted it is the last that it left.
            yield back.rollout, Promotion(tuning, pop, read_effect(key, text).at, back.at)


def _of_head(head: Head) -> Promotion | None:
    entered = {stay[0].state: stay[0].at for stay in runs(head.history)}
    since = min((entered[state] for state in _STANDS_FROM if state in entered), default=None)
    until = entered.get(State.ROLLING_BACK, math.inf)
    return None if since is None else Promotion(head.tuning, head.pop, since, until)
