# SPDX-License-Identifier: Apache-2.0
"""A campaign: its rings and PoPs, how far they are, and who did what.

edgetune.campaign.ID.EPOCH
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import Approved
from edgetune.base.documents.look import Effect
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.reading import KEPT_IF_SET, Number, decoded
from edgetune.base.documents.words import Decision, Verdict
from edgetune.base.errors import DamagedError

ENDED = ("complete", "aborted")


@dataclass
class PopStep:
    """Where a PoP stands: a plan is written down before its rollout begins, the ``rollout`` after.

    ``refused`` says why none could begin at the last attempt, ``left_out`` why none is needed.
    ``harm`` is the p by which the judge alone took its rollout back, None where nothing or
    something else did; ``alone`` is what its ring says while it does not confirm that.
    """

    plans: list[str] = field(default_factory=list)
    rollout: str = ""
    refused: str = ""
    left_out: str = ""
    harm: float | None = None
    alone: str = ""


@dataclass(frozen=True)
class PopEffect:
    """What one PoP alone shows: a ratio, the standard ``error`` of its logarithm, and the ratio
    that is likely of it given all PoPs, ``shrunken`` towards theirs."""

    ratio: Number
    error: Number
    shrunken: Number


@dataclass(frozen=True)
class RingEffect:
    """The effect over all PoPs of a ring that were judged, promoted or not (``judge.effects``).

    ``ratio`` is their mean with its ``interval``, ``next_pop`` the interval for one PoP more, None
    for fewer than three (bounds: None is unbounded; those of an effect are of 95 %). ``tau2`` is
    the variance of the logarithm between PoPs, ``i2`` the share of all variance that this is.
    """

    metric: str
    ratio: Number
    interval: list[Number | None]
    next_pop: list[Number | None] | None
    tau2: Number
    i2: float
    pops: dict[str, PopEffect]


@dataclass(frozen=True)
class RingLoad:
    """At which ``load`` a group passes the limit of a metric: the mean over so many ``pops``, with
    its ``interval``."""

    load: Number
    interval: list[Number | None]
    pops: int


@dataclass(frozen=True)
class RingHeadroom:
    """How much more load test hosts carry than control hosts before a ``metric`` passes its
    ``limit``, over the PoPs of a ring that were compared (``judge.headroom``).

    ``over`` is the ratio over those PoPs that have one, None for fewer than two, and ``loads`` at
    which load groups pass the limit, by ``test_before`` to ``control_after`` (see
    ``documents.look.Effect``), in multiples of what is usual; all with intervals of 90 %.

    The other PoPs are named and in no mean: no group of those of ``never`` was near the limit, one
    group alone of those of ``bounded`` passed it, and of those of ``unknown`` it is not known.
    """

    metric: str
    limit: Number
    definition: Metric
    over: RingEffect | None
    loads: dict[str, RingLoad]
    never: list[str]
    bounded: list[str]
    unknown: list[str]


@dataclass(frozen=True)
class RingVerdict:
    """What follows for a ring, and why; the rest is there where its PoPs were judged as one (see
    ``documents.look.Look``). ``effect`` and ``headroom`` are there where they are known.

    ``held`` names the PoPs that are held where the others are promoted, each with the reason.
    """

    decision: Decision
    reason: str
    verdict: Verdict | None = field(default=None, metadata=KEPT_IF_SET)
    draws: int | None = field(default=None, metadata=KEPT_IF_SET)
    metrics: list[Effect] | None = field(default=None, metadata=KEPT_IF_SET)
    effect: RingEffect | None = field(default=None, metadata=KEPT_IF_SET)
    held: dict[str, str] = field(default_factory=dict)
    headroom: list[RingHeadroom] = field(default_factory=list)

    def decision_of(self, pop: str) -> Decision:
        """What follows for one of its PoPs."""
        return Decision.HOLD if pop in self.held else self.decision


@dataclass
class RingStep:
    """A ring: ``begun``, ``judged`` and ``closed`` are epoch seconds, 0 before.

    ``approved_by``, ``approved_at`` and ``approved_because`` are those of an ``Approved``.
    ``verdict`` is a ``RingVerdict``, empty before. ``accepted`` says who goes on without it.
    """

    name: str
    digest: str
    pops: dict[str, PopStep]
    begun: float = 0.0
    approved_by: str = ""
    approved_at: float = 0.0
    approved_because: str = ""
    accepted: str = ""
    closed: float = 0.0
    verdict: dict[str, object] = field(default_factory=dict)
    judged: float = 0.0

    @property
    def approved(self) -> Approved:
        """Its approval."""
        return Approved(self.approved_by, self.approved_at, self.approved_because)

    @property
    def ruling(self) -> RingVerdict | None:
        """Its verdict, None before, or where it cannot be read."""
        try:
            return decoded(f"ring {self.name}", RingVerdict, self.verdict)
        except DamagedError:
            return None

    @property
    def effect(self) -> RingEffect | None:
        """The effect over its PoPs, None where it is not known."""
        return self.ruling.effect if self.ruling else None

    @property
    def headroom(self) -> Sequence[RingHeadroom]:
        """How much more load is carried over its PoPs, by metric with a limit."""
        return self.ruling.headroom if self.ruling else []

    def approve(self, approved: Approved) -> None:
        """Write down who approved it."""
        self.approved_by, self.approved_at = approved.by, approved.at
        self.approved_because = approved.reason


@dataclass
class Entry:
    """An entry of a campaign's ``history``; ``at`` is in epoch seconds."""

    at: float
    what: str
    by: str = ""
    execution: str = ""

    @property
    def told(self) -> str:
        """What happened, and who did it."""
        return f"{self.what} ({self.by})" if self.by else self.what


@dataclass
class Record:
    """One campaign; ``digest`` is that of its file, ``tuning_digest`` that of its tuning.

    ``channel`` is where in chat it and its rollouts tell how they get on. One that was aborted is
    ``over`` once none of its rollouts is under way.
    """

    id: str
    name: str
    tuning: str
    digest: str
    tuning_digest: str
    by: str
    created: float
    channel: str = ""
    state: str = "running"
    rings: list[RingStep] = field(default_factory=list)
    history: list[Entry] = field(default_factory=list)
    over: bool = False

    @property
    def present(self) -> RingStep | None:
        """The first ring that is not closed; None when all are."""
        return next((ring for ring in self.rings if not ring.closed), None)

    @property
    def pops(self) -> dict[str, PopStep]:
        """All PoPs of all rings."""
        return {name: pop for ring in self.rings for name, pop in ring.pops.items()}

    def note(self, by: str, what: str, execution: str = "") -> None:
        """Write down who did what, in which execution."""
        self.history.append(Entry(clock.wall(), what, by, execution))

    def become(self, state: str, by: str, why: str, execution: str = "") -> None:
        """Change the state, and write down why."""
        self.state = state
        self.note(by, f"{state}: {why}", execution)
