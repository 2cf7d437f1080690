# SPDX-License-Identifier: Apache-2.0
"""What a rollout did to the metric of its intent: kept by tuning, for plans on other PoPs.

edgetune.effect.TUNING.ROLLOUT
"""

from __future__ import annotations

import json
from dataclasses import asdict, field, replace

from edgetune import PACK, RECORD_SCHEMA
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import Number, check_is, decoded
from edgetune.base.documents.schema import read_versioned
from edgetune.base.documents.words import Verdict
from edgetune.base.sanitize import shortened

_LONGEST = 300
# Of logarithms and their errors. Ratios of factors of 10^300 are no floats any more.
_LARGEST, _LEAST = 690.0, 1e-12


@dataclass(frozen=True)
class Part:
    """How many ``test`` and ``control`` hosts were compared, the logarithm (``log``) of the ratio
    of their changes and its standard ``error``; both are None where they could not be compared."""

    test: int
    control: int
    log: Number | None = None
    error: Number | None = None

    @property
    def makes_sense(self) -> bool:
        """Whether it is known or not, and what is known can be reckoned with."""
        if self.log is None or self.error is None:
            return self.log is self.error
        return abs(self.log) <= _LARGEST and _LEAST <= self.error <= _LARGEST


@dataclass(frozen=True)
class KeptEffect:
    """The estimate of the look that ended a soak, at ``at`` (epoch seconds): over the ``whole`` PoP
    and by ``hardware``, with the ``verdict`` of that look.

    ``digest`` is that of the tuning, ``load`` the most packets per second of the PoP in the
    baseline. ``ended`` is the state in which the rollout ended, and ``why``; both are empty until
    then.
    """

    rollout: str
    pop: str
    tuning: str
    digest: str
    metric: str
    at: float
    verdict: Verdict
    whole: Part
    hardware: dict[str, Part] = field(default_factory=dict)
    load: Number = 0.0
    ended: str = ""
    why: str = ""

    @property
    def key(self) -> str:
        """The key that it is stored under."""
        return effect_key(self.tuning, self.rollout)

    def document(self) -> str:
        """As it is stored."""
        return json.dumps({"schema": RECORD_SCHEMA, **asdict(self)})

    def after(self, state: str, why: str) -> KeptEffect:
        """The same, with how its rollout ended."""
        return replace(self, ended=state, why=shortened(why, _LONGEST))


@dataclass(frozen=True)
class Expected:
    """What the effects of a tuning tell together of a ``metric`` (see ``judge.effects``): the mean
    ``ratio`` with its ``interval``, that for the next PoP, and by PoP the ratio that is ``likely``
    there given all others. ``hardware`` is empty where it is over all of it.

    One PoP alone has no interval, and for the next PoP it takes three.
    """

    metric: str
    hardware: str
    ratio: Number
    interval: list[Number | None] | None
    next_pop: list[Number | None] | None
    likely: dict[str, Number]


def effect_key(tuning: str = "", rollout: str = "") -> str:
    """The key of an effect; without a rollout what the keys of all of a tuning begin with, and
    without a tuning those of all."""
    return f"{PACK}.effect." + (f"{tuning}.{rollout}" if tuning else "")


def read_effect(key: str, text: str) -> KeptEffect:
    """A stored one; DamagedError if it is none, RefusedError if a later version wrote it."""
    effect = decoded(key, KeptEffect, read_versioned(key, text))
    check_is(key, "rollout", effect.key == key, "is of another key")
    for name, part in {"whole": effect.whole, **effect.hardware}.items():
        check_is(key, name, part.makes_sense, "makes no sense")
    return effect
