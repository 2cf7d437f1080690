# SPDX-License-Identifier: Apache-2.0
"""What the hosts of a rollout counted before anything was changed, and between two looks at a soak;
and what the judge has to know of them beside the metrics.

Rows of numbers, one for each host of a document, are the base64 of little-endian floats of 32 bits
(seven digits), row by row in the order of the document's hosts; ``judge.measured`` makes arrays of
it. Versions before 0.9 kept a list of numbers for each host of each metric instead.
"""

from __future__ import annotations

import math
import sys
from array import array
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import chain
from typing import Any, Union

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import Number, decoded, encoded

_LESS = 0.2
"""The improvement that a quiet baseline lets be seen; the worsening is that which undoes it."""
_TODAY = {"hosts": "rows", "halves": "halves"}


@dataclass(frozen=True)
class Prospect:
    """The smallest ``effect`` on a metric that would be seen with this ``power`` at ``alpha``.

    ``effect`` is a share of the metric: of improvement, or of worsening where the ``goal`` is
    ``no_harm``; None where nothing happened, or where it is not known (``is_known``): a half of the
    baseline was not measured. ``margin`` is the share that may be lost, ``measured`` in which share
    of both groups' time the metric was (see ``look.Effect``).
    """

    goal: str
    margin: float
    metric: str
    effect: Number | None
    power: float
    alpha: float
    measured: dict[str, float] = field(default_factory=dict)
    is_known: bool = True

    @property
    def is_clear(self) -> bool:
        """Whether a fifth less, or a quarter more, would be seen."""
        if self.effect is None:
            return False
        return self.effect <= (_LESS if self.goal == "improve" else 1 / (1 - _LESS) - 1)


@dataclass(frozen=True)
class Elasticity:
    """By how many per cent a metric per its exposure grows when the load of its host grows by one,
    and the standard error of that (see ``judge.elasticity``)."""

    value: Number
    error: Number


@dataclass(frozen=True)
class Buckets:
    """How many requests of a document's hosts were in each bucket of a histogram, of those buckets
    (by their ``numbers``) in which any were; ``judge.quantiles`` reads ``counts``."""

    numbers: list[int]
    counts: str


@dataclass(frozen=True)
class Loads:
    """How many slots of some ``hosts`` were at each load, and how many of these ``beyond`` the
    limit of a metric; buckets are bins of load (see ``judge.loads``).

    There is a row for each host, then for each of so many ``spans`` of time: those of the test
    hosts together, then those of the control hosts.
    """

    hosts: list[str]
    spans: int
    slots: Buckets
    beyond: Buckets


@dataclass(frozen=True)
class Usual:
    """One metric: its ``exposure`` (see ``Metric.unit_of``), what one event is (None where there
    was none), by how much slots vary beyond Poisson, and the rows of the hosts, of the whole and
    of both halves (see ``judge.measured``). ``elasticities`` are by stratum; earlier versions did
    not keep them."""

    exposure: str
    unit: Number | None
    dispersion: Number
    rows: str
    halves: str
    elasticities: dict[str, Elasticity] = field(default_factory=dict)


@dataclass(frozen=True)
class Baseline:
    """The span from ``start`` to ``end`` in slots of ``slot`` seconds, by metric.

    ``doubts`` say what keeps it from being one. ``power`` is what it lets be seen, ``health`` each
    host's median of its health check in ms, ``load`` the most packets per second of the PoP.
    ``histograms`` are by reading, of both halves: metrics of one have no rows. ``loads`` are those
    of each metric with a limit; earlier versions did not keep them.
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
    histograms: dict[str, list[Buckets]] = field(default_factory=dict)
    loads: dict[str, Loads] = field(default_factory=dict)

    @property
    def exposures(self) -> dict[str, str]:
        """By metric, the exposure that it is compared per."""
        return {name: usual.exposure for name, usual in self.metrics.items()}

    def document(self) -> dict[str, object]:
        """As it is stored."""
        return dict(encoded(self))


def read_baseline(key: str, document: Mapping[str, object]) -> Baseline:
    """A stored one of any version since 0.6; DamagedError names a field that cannot be read."""
    return decoded(key, Baseline, in_columns({**document}))


@dataclass(frozen=True)
class Counted:
    """One metric: ``rows`` of the block's hosts (see ``judge.measured``)."""

    rows: str


@dataclass(frozen=True)
class Block:
    """The span from ``start`` to ``end`` in slots of ``slot`` seconds, by metric.

    ``resumed`` says that a person resumed this soak after it had been held. ``histograms`` are by
    reading: metrics of one have no rows. ``loads`` are as those of a baseline.
    """

    start: float
    end: float
    slot: float
    hosts: list[str]
    metrics: dict[str, Counted]
    facts: Facts
    resumed: bool = False
    histograms: dict[str, Buckets] = field(default_factory=dict)
    loads: dict[str, Loads] = field(default_factory=dict)


Part = Union[Baseline, Block]
"""A document with what hosts counted over a span of time."""


def packed(numbers: Any) -> str:
    """The text of an array of floats of 32 bits."""
    return b2a_base64(numbers.tobytes(), newline=False).decode("ascii")


def in_columns(document: dict[str, Any]) -> dict[str, Any]:
    """A baseline or a block of any version as today's have it.

    What are no rows of its hosts is left for its reader to refuse.
    """
    metrics = document.get("metrics")
    if "hosts" in document or not isinstance(metrics, dict) or not _are_of_old(metrics):
        return document
    hosts = list(dict.fromkeys(chain.from_iterable(metric["hosts"] for metric in metrics.values())))
    return {
        **document,
        "hosts": hosts,
        "metrics": {name: _of_today(metric, hosts) for name, metric in metrics.items()},
    }


def _are_of_old(metrics: dict[str, Any]) -> bool:
    return all(isinstance(m, dict) and isinstance(m.get("hosts"), dict) for m in metrics.values())


def _of_today(metric: dict[str, Any], hosts: Sequence[str]) -> dict[str, Any]:
    rows = {_TODAY[name]: _text(metric[name], hosts) for name in _TODAY if name in metric}
    return {**{name: value for name, value in metric.items() if name not in _TODAY}, **rows}


def _text(rows: Any, hosts: Sequence[str]) -> str:
    """Empty if they are no rows of numbers, all of one length."""
    try:
        (width,) = {len(row) for row in rows.values()}
        unknown = [math.nan] * width
        numbers = array("f", chain.from_iterable(rows.get(host, unknown) for host in hosts))
    except (AttributeError, TypeError, ValueError, OverflowError):
        return ""
    if sys.byteorder == "big":
        numbers.byteswap()
    return packed(numbers)


@dataclass(frozen=True)
class Measured:
    """In how much of a window each metric was measured on each host, all in seconds.

    ``seconds`` is the length of the window, ``watched`` the time between samples of one boot, by
    host. ``known`` is by metric and host the part of it in which the metric is known, ``unread``
    by counter or gauge and host the part in which that was not read; only what is more than
    nothing is kept of it. ``why`` says of hosts what kept them from reading their access log when
    the window was measured.
    """

    seconds: float
    watched: dict[str, Number]
    known: dict[str, dict[str, Number]]
    unread: dict[str, dict[str, Number]]
    why: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Load:
    """Packets per second of all hosts together; None if they cannot be known."""

    median: Number | None
    peak: Number | None


@dataclass(frozen=True)
class Facts:
    """Each by host: in how many slots it was sampled, the time of its ``newest`` sample (None
    without any), the first of its ``flaws`` in words, its mean ``packets`` per second (None if
    unknown), the share of its slots in which it was ``idle``, and that of its idlest block.

    ``boots`` holds those of its first and of its last sample. Versions before 0.8 kept neither
    that nor ``idlest`` nor what was ``measured``.
    """

    samples: dict[str, int]
    newest: dict[str, float | None]
    flaws: dict[str, str]
    packets: dict[str, Number | None]
    idle: dict[str, float]
    load: Load
    idlest: dict[str, float] | None = None
    boots: dict[str, list[str]] = field(default_factory=dict)
    measured: Measured | None = None

    @property
    def at_idlest(self) -> Mapping[str, float]:
        """``idlest``, or ``idle`` where that is all that is known."""
        return self.idle if self.idlest is None else self.idlest
