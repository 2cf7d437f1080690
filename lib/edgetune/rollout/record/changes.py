# SPDX-License-Identifier: Apache-2.0
"""Since when each tuning stands on a PoP, or until when it stood, by what the records say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import Head, runs
from edgetune.base.documents.past import past_key, read_past
from edgetune.base.durations import DAY
from edgetune.base.errors import RefusedError
from edgetune.rollout.context import Context
from edgetune.rollout.record.effects import kept_effects
from edgetune.rollout.record.heads import living_heads

_PROMOTED = ("promoting", "complete")
_LEAST = DAY


@dataclass(frozen=True)
class Stood:
    """A tuning on all hosts of a PoP ``since`` it was promoted, ``until`` it was taken back (inf:
    it stands), in epoch seconds."""

    tuning: str
    pop: str
    since: float
    until: float


def changes_of(context: Context) -> list[Stood]:
    """The newest of each tuning on each PoP, in the order in which they were promoted.

    What cannot be read is left out. So is a rollout that was taken back within a day: it was held
    rather than promoted.
    """
    every = [*_archived(context), *map(_of_head, living_heads(context))]
    newest: dict[tuple[str, str], Stood] = {}
    for own in sorted(filter(None, every), key=lambda own: own.since):
        if own.until - own.since >= _LEAST:
            newest[own.tuning, own.pop] = own
    return sorted(newest.values(), key=lambda own: own.since)


def _archived(context: Context) -> Iterator[Stood]:
    judged = {own.rollout: own.at for own in kept_effects(context)[0]}
    start = past_key("")
    for key, text in context.store.list(start).items():
        pop = key[len(start) :]
        with suppress(RefusedError):
            past = read_past(pop, text)
            for own in past.standing.values():
                yield Stood(own.tuning, pop, own.at, math.inf)
            for tuning, back in past.tried.items():
                # The look that promoted it is the last that it left.
                if back.rollout in judged:
                    yield Stood(tuning, pop, judged[back.rollout], back.at)


def _of_head(head: Head) -> Stood | None:
    entered = {stay[0].state: stay[0].at for stay in runs(head.history)}
    since = min((entered[state] for state in _PROMOTED if state in entered), default=None)
    until = entered.get("rolling_back", math.inf)
    return None if since is None else Stood(head.tuning, head.pop, since, until)
