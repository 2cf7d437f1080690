# SPDX-License-Identifier: Apache-2.0
"""What the hosts of a rollout counted before anything was changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.facts import Facts
from edgetune.base.documents.reading import Number, decoded, encoded
from edgetune.base.documents.rows import in_columns


@dataclass(frozen=True)
class Prospect:
    """The smallest ``effect`` on a metric that would be seen with this ``power`` at ``alpha``.

    ``effect`` is a share of the metric: of improvement, or of worsening where the ``goal`` is
    ``no_harm``; None where nothing happened. ``margin`` is the share that may be lost.
    """

    goal: str
    margin: float
    metric: str
    effect: Number | None
    power: float
    alpha: float


@dataclass(frozen=True)
class Usual:
    """One metric: its ``exposure`` (see ``Metric.unit_of``), what one event is (None where there
    was none), by how much slots vary beyond Poisson, and the rows of the hosts, of the whole and
    of both halves (see ``documents.rows``, ``judge.measured``)."""

    exposure: str
    unit: Number | None
    dispersion: Number
    rows: str
    halves: str


@dataclass(frozen=True)
class Baseline:
    """The span from ``start`` to ``end`` in slots of ``slot`` seconds, by metric.

    ``doubts`` say what keeps it from being one. ``power`` is what it lets be seen, ``health`` each
    host's median of its health check in ms, ``load`` the most packets per second of the PoP.
    """

    start: float
    end: float
    slot: float
    hosts: list[str]
    metrics: dict[str, Usual]
    facts: Facts
    doubts: list[str] = field(default_factory=list)
    power: Prospect | None = None
    health: dict[str, Number] = field(default_factory=dict)
    load: Number = 0.0

    @property
    def exposures(self) -> dict[str, str]:
        """What each metric is compared per."""
        return {name: usual.exposure for name, usual in self.metrics.items()}

    def document(self) -> dict[str, object]:
        """As it is stored."""
        found: dict[str, object] = encoded(self)
        return found


def read_baseline(key: str, document: Mapping[str, object]) -> Baseline:
    """A stored one of any version since 0.6; DamagedError names a field that cannot be read."""
    return decoded(key, Baseline, in_columns({**document}))
