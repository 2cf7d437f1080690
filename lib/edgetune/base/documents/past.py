# SPDX-License-Identifier: Apache-2.0
"""What the archive holds of a PoP, so that nobody has to read the archive to know.

edgetune.past.POP
"""

from __future__ import annotations

import json
from dataclasses import asdict, field

from edgetune import PACK, RECORD_SCHEMA
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import ID, LARGEST_EPOCH
from edgetune.base.documents.reading import check_is, decoded
from edgetune.base.documents.schema import read_versioned


@dataclass(frozen=True)
class Tried:
    """A ``rollout`` that changed hosts and was taken back: ``at`` when (epoch seconds), and why."""

    rollout: str
    at: float
    why: str


@dataclass(frozen=True)
class Past:
    """Of the archived rollouts of a PoP: the largest ``epoch``, the id of the ``last`` that began,
    whether a tuning may stand by one of them (``stands``), and by tuning the newest that was taken
    back (``tried``).

    It is written before what it tells of is moved. So it may say too much, never too little.
    """

    epoch: int
    last: str
    stands: bool
    tried: dict[str, Tried] = field(default_factory=dict)

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
