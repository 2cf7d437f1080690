# SPDX-License-Identifier: Apache-2.0
"""How much traffic tuned hosts carry beside untuned ones: what is planned, and what was measured.

edgetune.capacity_plan.DIGEST    what ``plan_capacity`` shows
edgetune.capacity.ROLLOUT        the last measurement during that rollout

Load is in multiples: 1.5 is half as much again as the host's usual share of the PoP's traffic.
"""

from __future__ import annotations

import json
from dataclasses import field

from edgetune import PACK, RECORD_SCHEMA
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.reading import (
    KEPT_IF_SET,
    Number,
    check_is,
    decoded,
    digest_of,
    encoded,
)
from edgetune.base.documents.schema import read_versioned
from edgetune.base.errors import RefusedError


@dataclass(frozen=True)
class Ladder:
    """Weights that hosts get one after the other, and which share of the PoP's requests each host
    has with them. The first of both are the usual ones."""

    weights: list[int]
    shares: list[float]


@dataclass(frozen=True)
class PlannedPair:
    """A tuned and an untuned host of one ``stratum`` with the same weight.

    ``both`` is for the two of them, and ``single`` for one while the other has its usual weight. No
    weight of ``both`` is beyond those of ``single``: whichever of the two returns first, or has it
    first, the other one gets no more than the most.
    """

    tuned: str
    untuned: str
    stratum: str
    both: Ladder
    single: Ladder

    @property
    def hosts(self) -> tuple[str, str]:
        """Both of them, the tuned one first."""
        return self.tuned, self.untuned

    @property
    def most(self) -> float:
        """The largest share that a host gets."""
        return max(*self.both.shares, *self.single.shares)

    def above(self, hosts: int, weight: int) -> int | None:
        """The next weight for so many of its hosts; None where there is none."""
        ladder = self.both if hosts > 1 else self.single
        return next((heavier for heavier in ladder.weights if heavier > weight), None)


@dataclass(frozen=True)
class CapacityPlan:
    """What a measurement during a ``rollout`` would do.

    No host gets more than the share ``most`` of the PoP's requests, and each weight stands for
    ``hold`` seconds. A host has reached its limit where ``metric`` is worse than ``limit``; None
    stands for the one that its pair gives. ``definition`` is the metric's; earlier versions did not
    keep it. After the first limit of a pair both hosts return;
    with ``alone`` the other one goes on by itself. ``seed`` gave the pairs and their order.
    """

    pop: str
    rollout: str
    tuning: str
    metric: str
    limit: float | None
    most: float
    hold: float
    alone: bool
    seed: int
    pairs: list[PlannedPair]
    definition: Metric | None = field(default=None, metadata=KEPT_IF_SET)

    @property
    def digest(self) -> str:
        """The digest of the whole plan."""
        return digest_of(encoded(self))

    def document(self) -> str:
        """As it is stored."""
        return json.dumps({"schema": RECORD_SCHEMA, **encoded(self)})


@dataclass
class Rung:
    """What ``hosts`` of a pair showed with one ``weight``, from ``at`` on (epoch seconds): with the
    ``share`` of the requests that each had, which is ``load`` times the usual one.

    ``levels`` are by host and metric, None for what was not measured. ``reached`` says by host
    which limit it reached. Hosts that had returned before are in neither.
    """

    hosts: list[str]
    weight: int
    share: float = 0.0
    load: float = 1.0
    at: float = 0.0
    levels: dict[str, dict[str, Number | None]] = field(default_factory=dict)
    reached: dict[str, str] = field(default_factory=dict)
    read: bool = False


@dataclass
class PairMeasured:
    """The rungs of a pair in turn. ``stopped`` says why no more was tried, "" while that goes on.

    ``carried`` is by host the largest load within its limits, ``crossed`` the load at which it
    reached one (see ``judge.capacity``); a host that reached none is not in ``crossed``.
    """

    rungs: list[Rung] = field(default_factory=list)
    stopped: str = ""
    carried: dict[str, float] = field(default_factory=dict)
    crossed: dict[str, float] = field(default_factory=dict)

    @property
    def last(self) -> Rung | None:
        """The newest rung."""
        return self.rungs[-1] if self.rungs else None


@dataclass(frozen=True)
class CapacityRatio:
    """How many times as much tuned hosts carry as untuned ones before the first limit, over
    ``pairs`` pairs; ``interval`` is of 90 %, None for a single pair.

    ``bound`` is "exactly" where both hosts of each pair reached a limit, else "at_least" or
    "at_most". ``metric`` has the limit; earlier versions did not name it here.
    """

    ratio: float
    pairs: int
    bound: str = "exactly"
    interval: list[float] | None = None
    metric: str = ""


@dataclass
class Capacity:
    """One measurement: ``pairs`` as its ``plan`` has them, ``ended`` in epoch seconds (0: it goes
    on). ``stopped`` says what ended it before its last pair, "" if nothing did. ``notes`` tell
    what was found of weights that somebody else had set."""

    plan: CapacityPlan
    by: str
    begun: float
    ended: float = 0.0
    stopped: str = ""
    pairs: list[PairMeasured] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ratio: CapacityRatio | None = None

    @property
    def at(self) -> int | None:
        """The number of the pair that is measured or is the next; None where none is left."""
        open_ = (n for n, pair in enumerate(self.pairs) if not pair.stopped)
        return next(open_, None) if not (self.stopped or self.ended) else None

    def document(self) -> str:
        """As it is stored."""
        return json.dumps({"schema": RECORD_SCHEMA, **encoded(self)})


def plan_key(digest: str) -> str:
    """The key of a plan."""
    return f"{PACK}.capacity_plan.{digest}"


def capacity_key(rollout: str) -> str:
    """The key of the last measurement during a rollout."""
    return f"{PACK}.capacity.{rollout}"


def read_capacity_plan(digest: str, text: str | None) -> CapacityPlan:
    """A stored plan; RefusedError if there is none, DamagedError if it cannot be read."""
    if text is None:
        raise RefusedError(f"there is no plan of a measurement with the digest {digest!r}")
    key = plan_key(digest)
    plan = decoded(key, CapacityPlan, read_versioned(key, text))
    check_is(key, "digest", plan.digest == digest, "is of another document")
    _check(key, plan)
    return plan


def read_capacity(rollout: str, text: str) -> Capacity:
    """A stored measurement; DamagedError if it is none."""
    key = capacity_key(rollout)
    capacity = decoded(key, Capacity, read_versioned(key, text))
    plan, ratio = capacity.plan, capacity.ratio
    _check(key, plan)
    check_is(key, "plan", plan.rollout == rollout, "is of another rollout")
    check_is(key, "pairs", len(capacity.pairs) == len(plan.pairs), "are not those of the plan")
    interval = ratio.interval if ratio else None
    check_is(key, "ratio", interval is None or len(interval) == 2, "holds what is no interval")
    return capacity


def _check(key: str, plan: CapacityPlan) -> None:
    for pair in plan.pairs:
        for ladder in (pair.both, pair.single):
            whole = len(ladder.weights) == len(ladder.shares) > 0 and min(ladder.shares) > 0
            check_is(key, "pairs", whole, "have weights without shares")
