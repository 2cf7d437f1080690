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
from edgetune.base.documents.reading import Number, check_is, decoded
from edgetune.base.documents.schema import read_versioned


@dataclass(frozen=True)
class Tried:
    """A ``rollout`` that changed hosts and was taken back: ``at`` when (epoch seconds), and why."""

    rollout: str
    at: float
    why: str


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
    """

    epoch: int
    last: str
    standing: dict[str, Standing]
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
