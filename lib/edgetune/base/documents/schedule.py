# SPDX-License-Identifier: Apache-2.0
"""When which PoP of a campaign has its turn: what has yet to be done, and the schedule of it.

Times are in seconds, moments in epoch seconds. A range is from the least to the most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Union

from edgetune.base.dataclass import dataclass
from edgetune.base.freezes import EVERY_HOUR, Event, Freeze

Closed = tuple[Union[Freeze, Event], ...]
Range = Sequence[float]


@dataclass(frozen=True)
class PopWork:
    """What is left to do on a PoP: seconds of ``baseline`` (a range) and ``soak``, the batches
    before the soak (``changes``) and after the verdict (``promotes``), each of which takes
    ``batch`` seconds, a range.

    With ``measured`` samples are kept since that moment, which may save all but the least of the
    baseline. One that has ``begun`` is under way, and one that ``waits`` has ended its soak.
    ``twins`` take its traffic. Its batches begin in these ``hours`` of the week alone; ``load``
    says which these are and how many hosts may be out then, "" where no load is asked for. ``why``
    says in words what is not known of it.
    """

    name: str
    baseline: Range
    changes: int
    soak: float
    promotes: int
    batch: Range
    twins: tuple[str, ...] = ()
    measured: float = math.inf
    begun: bool = False
    waits: bool = False
    why: str = ""
    hours: frozenset[int] = EVERY_HOUR
    load: str = ""

    def watched(self, begins: float) -> float:
        """When its baseline ends at the soonest, if it begins then."""
        least, most = self.baseline[0], self.baseline[-1]
        saved = begins - self.measured if self.measured < begins else 0.0
        return begins + (max(least, most - saved) if self.measured < math.inf else most)


@dataclass(frozen=True)
class RingWork:
    """What is left of a ring: ``at_once`` PoPs at a time, 0 for all; nothing begins in what is
    ``closed``. ``pooled`` says that all of them wait for one verdict, ``approval`` that a person
    has yet to approve it. Of PoPs that are ``unknown`` there is no figure, for the reason given."""

    name: str
    pops: tuple[PopWork, ...]
    at_once: int
    pooled: bool
    closed: Closed = ()
    approval: bool = False
    unknown: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """When a PoP ``begins``, has ``soaked``, and ``ends``: ranges of moments.

    ``why`` and ``load`` are those of its ``PopWork``.
    """

    pop: str
    ring: str
    begins: Range
    soaked: Range
    ends: Range
    why: str = ""
    load: str = ""


@dataclass(frozen=True)
class Cost:
    """A constraint, and by how many ``seconds`` sooner the campaign would end without it."""

    constraint: str
    seconds: float


@dataclass(frozen=True)
class Schedule:
    """When a campaign that goes on at ``start`` ends: a range, infinite where freezes never end.

    ``bound`` is the moment before which no schedule can end. ``turns`` are in the order in which
    PoPs begin. ``costs`` are of the constraints one at a time, the largest first. ``auto`` is when
    it would end, at most, with ``max_concurrent: auto``. ``without`` says what no figure is in.
    """

    start: float
    ends: Range
    bound: float
    turns: Sequence[Turn]
    costs: Sequence[Cost]
    auto: float
    without: Sequence[str] = ()

    @property
    def is_endless(self) -> bool:
        """Whether freezes follow without end."""
        return not math.isfinite(self.ends[1])

    def document(self) -> dict[str, object]:
        """As an answer has it: moments in whole seconds, None for what has no end."""
        return {
            "start": _moment(self.start),
            "ends": [_moment(each) for each in self.ends],
            "bound": _moment(self.bound),
            "auto": _moment(self.auto),
            "costs": {cost.constraint: _moment(cost.seconds) for cost in self.costs},
            "without": list(self.without),
            "pops": [
                {
                    "pop": turn.pop,
                    "ring": turn.ring,
                    "begins": [_moment(each) for each in turn.begins],
                    "soaked": [_moment(each) for each in turn.soaked],
                    "ends": [_moment(each) for each in turn.ends],
                    "why": turn.why,
                    "load": turn.load,
                }
                for turn in self.turns
            ],
        }


def _moment(seconds: float) -> int | None:
    return round(seconds) if math.isfinite(seconds) else None
