# SPDX-License-Identifier: Apache-2.0
"""What a metric is: how it is counted, what it is compared per, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import KEPT_IF_SET, Number

SECONDS = "seconds"
READINGS = "readings"
REQUESTS = "requests"


@dataclass(frozen=True)
class Unit:
    """How a rate over an exposure is shown: multiplied by ``scale``, with ``text`` behind."""

    text: str
    scale: float = 1.0


_UNITS: Mapping[str, Unit] = {
    SECONDS: Unit("per s"),
    READINGS: Unit("mean"),
    # Of records of version 0.7 and before.
    "cpu_total_ms": Unit("per ms"),
}


@dataclass(frozen=True)
class Histogram:
    """A ``quantile``, in per cent, of what bucket counters count: those of the reading ``of``.

    Its buckets are those of ``agent.vocabulary.buckets``; or they end at ``bounds``, and the last
    one has no end. Amounts that differ by less than ``resolution`` count as the same. ``weight``
    is by how much its logarithm counts in a mean of several.
    """

    of: str
    quantile: float
    resolution: float = 0.0
    bounds: list[float] = field(default_factory=list)
    weight: float = 1.0


@dataclass(frozen=True)
class Metric:
    """One metric; ``better`` is the direction that is an improvement: lower or higher.

    Its events are the growth of ``counters`` together, less that of ``less``. They are compared per
    the counter ``per``; or per ``per_if_known`` where every host has that, else per second.
    ``unit`` and ``scale`` are those of a rate per such a counter. ``unsteady`` says by how much
    counters may fall without having been reset.

    A metric with ``gauges`` has no counters: its readings are those of the one gauge, or the
    geometric mean of several by their weights, which add up to 1. ``parts`` are the metrics that
    are shown beside such a mean. One of a ``histogram`` has neither: it is a quantile of all
    requests of a window, in ``unit``; or it is the geometric mean of those that it is a
    ``mean_of``, by their weights.

    ``limit``, in the metric's unit, is what a host may have at most, or at least where higher is
    better: at which load it gets there is the capacity of a PoP (see ``judge.headroom``). It judges
    nothing.

    ``phrase`` is what a group of hosts did, past tense, for a sentence; ``{much}`` becomes
    "12 % more", or "12 % fewer", which of a ``mass`` (time) is "12 % less".
    """

    title: str
    phrase: str
    better: str = "lower"
    mass: bool = False
    counters: list[str] = field(default_factory=list)
    less: list[str] = field(default_factory=list)
    per: str | None = field(default=None, metadata=KEPT_IF_SET)
    per_if_known: str | None = field(default=None, metadata=KEPT_IF_SET)
    unit: str = ""
    scale: float = 1.0
    unsteady: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)
    histogram: Histogram | None = field(default=None, metadata=KEPT_IF_SET)
    mean_of: list[Histogram] = field(default_factory=list)
    limit: Number | None = field(default=None, metadata=KEPT_IF_SET)

    @property
    def sign(self) -> float:
        """The sign of the logarithm of a change to the worse."""
        return 1.0 if self.better == "lower" else -1.0

    @property
    def sign_of_worse(self) -> str:
        """The same, for people."""
        return "+" if self.better == "lower" else "-"

    @property
    def needed(self) -> tuple[str, ...]:
        """The counters and gauges without which it is not known."""
        of = [quantile.of for quantile in self.quantiles]
        return tuple(dict.fromkeys([*self.counters, *self.less, *self._per, *self.gauges, *of]))

    @property
    def quantiles(self) -> list[Histogram]:
        """The histograms that it is a quantile of, or a mean of quantiles; none for all else."""
        return [self.histogram] if self.histogram else self.mean_of

    @property
    def readings(self) -> tuple[str, ...]:
        """All counters and gauges that it is made of, or compared per."""
        maybe = [self.per_if_known] if self.per_if_known else []
        return tuple(dict.fromkeys([*self.needed, *maybe]))

    @property
    def _per(self) -> list[str]:
        return [self.per] if self.per else []

    @property
    def asks_service(self) -> bool:
        """Whether hosts know it only where their PoP has a health check."""
        return any(gauge.startswith("health_") for gauge in self.gauges)

    def unit_of(self, exposure: str) -> Unit:
        """The unit of a rate over an exposure, as in ``Window.exposures``."""
        if self.quantiles or exposure in (self.per, self.per_if_known):
            return Unit(self.unit, self.scale)
        return _UNITS.get(exposure, Unit(f"per {exposure}"))
