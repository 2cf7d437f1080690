# SPDX-License-Identifier: Apache-2.0
"""What one look at a soak found, and what follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.baseline import Block, Prospect, in_columns
from edgetune.base.documents.plan import Plan
from edgetune.base.documents.reading import KEPT_IF_SET, Number, check_is, decoded, encoded, renamed
from edgetune.base.documents.words import Decision, Verdict


@dataclass(frozen=True)
class Moment:
    """Which look it is ``of`` those planned, and the share of the soak that has ``passed``."""

    number: int
    of: int
    passed: float


@dataclass(frozen=True)
class Doubt:
    """One reason: its ``kind``, a part of a sentence, and whether it biases the comparison.

    ``explains`` is the ratio by which a bias can make metrics of test and control hosts differ at
    most (None: by any), apart from those of ``hosts``, which are not comparable at all. The metric
    that it is ``shown_by`` is not explained by it: that is the same finding.

    Kinds: ``missing``, ``reset``, ``reboot``, ``stale``, ``spill_over``, ``imbalance``,
    ``no_peak``; of what was measured (``judge.coverage``), ``unmeasured``, ``one_sided`` and
    ``unrecorded``; and, of a look, ``few_requests``, ``few_hosts``, ``few_events``, ``moved_load``,
    ``fading`` and ``surprise``.
    """

    kind: str
    text: str
    biased: bool = False
    explains: Number | None = None
    hosts: tuple[str, ...] = ()
    shown_by: str = ""


@dataclass(frozen=True)
class Unwatched:
    """An optional metric, and the hosts on which the baseline has it not."""

    metric: str
    hosts: list[str]


@dataclass(frozen=True)
class Spent:
    """One sequential test after a look (see ``judge.permutation``).

    ``p`` is that of this look alone, None where nothing could be compared; ``spent`` of ``alpha``
    is gone by now, which is the ``share`` of it, and of this the share ``forgone`` was spent on
    other groups. ``alive`` are the draws that are not taken out, packed, at both ends of what a
    difference of load explains; the real one is ``out`` where the test has proven something at
    both. ``score`` is the lesser of the real draw, None where it is infinite.
    """

    p: float | None
    alpha: float
    spent: float
    share: float
    score: Number | None
    out: bool
    forgone: float
    alive: str

    @property
    def left(self) -> float:
        """The p of a draw that is not out yet which decided by now: alpha, as far as it is spent
        and not forgone."""
        return self.alpha * max(0.0, self.share - self.forgone)


@dataclass(frozen=True)
class Effect:
    """What a look found of one metric; its ``role`` is ``intent``, ``guard``, ``part`` of one of
    these, or ``beside``: the last two are shown and not judged.

    ``ratio`` is that of the test group's change to the control group's, inside the bounds of
    ``interval`` (None: unbounded); ``windows`` holds it by window of the soak, ``margin`` is the
    share by which it may be worse. ``p_better`` and ``p_worse`` are those of a single look,
    ``theta`` is the share of each host's baseline that was taken off. Ratios and p are None where
    the groups could not be compared. ``test_before`` to ``control_after`` are the mean levels of
    each group's hosts, events per exposure (see ``Metric.unit_of``), None if unknown. ``measured``
    says by these names in which share of the hosts' time the metric was; earlier versions did not.
    ``requests_error`` is by which share the ratio of a quantile may be off because there were so
    few requests: one standard error.
    """

    metric: str
    role: str
    exposure: str
    margin: Number
    windows: dict[str, Number]
    theta: float
    test_before: Number | None
    control_before: Number | None
    test_after: Number | None
    control_after: Number | None
    ratio: Number | None = None
    interval: list[Number | None] = field(default_factory=lambda: [None, None])
    p_better: float | None = None
    p_worse: float | None = None
    ratio_at_theta_1: Number | None = None
    measured: dict[str, float] = field(default_factory=dict)
    requests_error: Number | None = field(default=None, metadata=KEPT_IF_SET)

    @property
    def levels(self) -> tuple[Number | None, ...]:
        """The levels of test hosts before and after, then of control hosts."""
        return self.test_before, self.test_after, self.control_before, self.control_after

    @property
    def known_ratio(self) -> Number | None:
        """The ratio where both groups were measured before and after; earlier versions had one all
        the same."""
        return None if None in self.levels else self.ratio


@dataclass(frozen=True)
class Outlier:
    """A host whose metric changed ``times`` as much as the median of its ``group``."""

    host: str
    group: str
    metric: str
    times: Number


@dataclass(frozen=True)
class Conclusion:
    """What a record's newest look came to, or its baseline if that ended it; ``ratio`` is that of
    the intent's ``metric``, which was ``measured`` so far (see ``Effect``), None where nothing was
    compared. Earlier versions did not name the metric. ``ratios`` are those of all metrics that
    were judged, ``headroom`` those of the load that groups carry, by metric with a limit; both
    without what is not known."""

    verdict: Verdict
    decision: Decision
    reason: str
    ratio: Number | None = None
    metric: str = ""
    measured: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, Number] = field(default_factory=dict)
    headroom: dict[str, Number] = field(default_factory=dict)


@dataclass(frozen=True)
class Passed:
    """At which load a group of hosts passed the limit of a metric, a multiple of what was usual in
    the baseline, and between which ``bounds`` that lies with a probability of 90 %.

    Both are None where that is not known, and ``why`` says so: ``never`` (none was near it, up to a
    load of ``seen``), ``always`` (they were beyond it at every load), ``short`` (they were near it
    for too short), or ``unmeasured`` (too few of them, or for too short).
    """

    load: Number | None
    bounds: list[Number] | None
    seen: Number | None
    why: str


@dataclass(frozen=True)
class Headroom:
    """How much more load the test hosts carry than the control hosts before a ``metric`` passes its
    ``limit`` (see ``judge.headroom``); it decides nothing.

    ``groups`` are by ``test_before`` to ``control_after`` (see ``Effect``). ``ratio`` is that of
    test to control, where all four are known of both's change since the baseline
    (``since_baseline``), with its 90 % ``interval``. Where only one of the groups passed the limit
    there is no ratio, and one bound.
    """

    metric: str
    limit: Number
    groups: dict[str, Passed]
    ratio: Number | None
    interval: list[Number | None]
    since_baseline: bool


@dataclass(frozen=True)
class Look:
    """What one look found.

    ``tests`` are those of ``harm`` and ``help``, ``metrics`` begins with that of the intent; both
    are empty where a look found nothing out. ``hosts`` holds by metric and host the levels before
    and after, events per exposure, and the change as a ratio; None if unknown. ``drawn_from`` tells
    groups of other hosts apart, which were drawn in ``draws`` ways.

    ``number`` counts the looks of a record, ``until`` is the end of what was looked at and ``at``
    when it was, both in epoch seconds, ``block`` what was counted since the look before. Looks of
    versions before 0.6 have nothing but verdict, decision and reason. ``unwell`` says by test host
    what was beyond the hard limits. Where the one test of a ``ring`` decided (``CAMPAIGN/RING``),
    verdict, decision and reason are the ring's, and the numbers those of the PoP's last look.
    ``headroom`` is that of each metric with a limit, once a look decides.
    """

    verdict: Verdict
    decision: Decision
    reason: str
    moment: Moment | None = None
    doubts: list[Doubt] = field(default_factory=list)
    unwatched: list[Unwatched] = field(default_factory=list)
    draws: int = 0
    drawn_from: str = ""
    tests: dict[str, Spent] = field(default_factory=dict)
    metrics: list[Effect] = field(default_factory=list)
    hosts: dict[str, dict[str, list[Number | None]]] = field(default_factory=dict)
    outliers: list[Outlier] = field(default_factory=list)
    power: Prospect | None = None
    block: Block | None = None
    number: int = 0
    until: float | None = None
    at: float | None = None
    unwell: dict[str, str] = field(default_factory=dict)
    ring: str = ""
    headroom: list[Headroom] = field(default_factory=list)

    def document(self) -> dict[str, object]:
        """As it is stored."""
        document: dict[str, object] = renamed(encoded(self), {"moment": "look"})
        return document

    @property
    def conclusion(self) -> Conclusion:
        """What the head of the record keeps of it."""
        conclusion = Conclusion(self.verdict, self.decision, self.reason)
        if not self.metrics:
            return conclusion
        intent = self.metrics[0]
        ratios = {row.metric: row.known_ratio for row in self.metrics if row.role != "part"}
        return replace(
            conclusion,
            ratio=intent.known_ratio,
            metric=intent.metric,
            measured=intent.measured,
            ratios={name: ratio for name, ratio in ratios.items() if ratio is not None},
            headroom={row.metric: row.ratio for row in self.headroom if row.ratio is not None},
        )


@dataclass(frozen=True)
class Judged:
    """A look, and the plan of the rollout that it was at."""

    look: Look
    plan: Plan


_BEFORE_0_6 = ("verdict", "decision", "reason", "number")


def read_look(key: str, document: Mapping[str, object]) -> Look:
    """A stored one of any version; DamagedError names a field that cannot be read."""
    if "until" not in document:
        kept = {name: document[name] for name in _BEFORE_0_6 if name in document}
        return decoded(key, Look, kept)
    body = renamed({**document}, {"look": "moment"})
    block = body.get("block")
    if isinstance(block, dict):
        body = {**body, "block": in_columns(block)}
    look = decoded(key, Look, body)
    for effect in look.metrics:
        check_is(
            key, f"metrics.{effect.metric}.interval", len(effect.interval) == 2, "is no interval"
        )
    for headroom in look.headroom:
        good = len(headroom.interval) == 2 and all(
            len(g.bounds or "12") == 2 for g in headroom.groups.values()
        )
        check_is(key, f"headroom.{headroom.metric}", good, "holds what is no interval")
    rows = [row for metrics in look.hosts.values() for row in metrics.values()]
    check_is(key, "hosts", {3}.issuperset(map(len, rows)), "holds what is no row")
    return look
