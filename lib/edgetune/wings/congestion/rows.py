# SPDX-License-Identifier: Apache-2.0
"""What was measured of each client prefix in one round, checked: others measured it; and what it
showed of treated and of held-out prefixes, to be looked at by people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgetune.agent.vocabulary.prefixes import END, MEASURED, V6, number_of
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.congestion import Chosen, Thresholds
from edgetune.base.documents.rounds import Levels
from edgetune.base.errors import SourceError

Array = Any

MEASURES = ("sockets", *MEASURED)
"""Of the sockets that were seen of a prefix: how many there were; the medians of the rates at which
they delivered (without those that the application limits), of their goodput, and of their
round-trip times, and the least of these; and the bytes of their whole lives."""

FASTEST = 1.25e11
"""Bytes a second, a terabit: no socket delivers more."""
LONGEST_RTT_MS = 3.6e6
MOST_BYTES = 1e18
_MOST_ABSURD = 0.1
_LEAST = {"sockets": 1.0, "delivery_rate": 1e-3}
_LARGEST = {
    "sockets": 1e9,
    "delivery_rate": FASTEST,
    "goodput": FASTEST,
    "rtt_ms": LONGEST_RTT_MS,
    "min_rtt_ms": LONGEST_RTT_MS,
}
_NUMBERS = frozenset((int, float))
_KNOWN = frozenset((int, float, type(None)))
_REQUIRED = ("sockets", "delivery_rate")


@dataclass(frozen=True)
class PrefixRows:
    """Arrays with a row for each prefix, in the order of their numbers (``vocabulary.prefixes``).

    ``measures`` are float64 by the names of MEASURES. NaN is what is not known; sockets and
    delivery rate always are.
    """

    round: int
    prefixes: Array
    measures: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.prefixes)

    def only(self, chosen: Array) -> PrefixRows:
        """Those rows alone; ``chosen`` is bool, shape (rows,), or places."""
        if chosen.dtype == bool and chosen.all():
            return self
        own = {name: values[chosen] for name, values in self.measures.items()}
        return PrefixRows(self.round, self.prefixes[chosen], own)


def make_rows(
    where: str, number: int, prefixes: Sequence[object], measures: Mapping[str, Sequence[object]]
) -> PrefixRows:
    """Rows of the round ``number`` from columns of one length, None for what is not known.

    Rows that no network can show are left out. SourceError, with ``where`` in front, for a column
    that holds no numbers, a prefix that comes twice or is none, and for more than a tenth of such
    rows: then other columns are wrong, too.
    """
    keys = _keys(where, prefixes)
    columns = {name: _column(where, name, measures[name], len(keys)) for name in MEASURES}
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    if np.any(keys[1:] == keys[:-1]):
        raise SourceError(f"{where}: a prefix comes twice in round {number}")
    rows = PrefixRows(number, keys, {name: values[order] for name, values in columns.items()})
    good = _possible(rows)
    absurd = len(rows) - int(np.count_nonzero(good))
    if absurd > _MOST_ABSURD * len(rows):
        raise SourceError(
            f"{where}: {absurd} of {len(rows)} prefixes of round {number} have a rate, a time or "
            "a number of bytes that no network has"
        )
    return rows.only(good) if absurd else rows


def _keys(where: str, prefixes: Sequence[object]) -> Array:
    if not {int}.issuperset(map(type, prefixes)):
        raise SourceError(f"{where}: a prefix is no whole number")
    try:
        keys = np.array(prefixes, dtype=np.uint64)
    except OverflowError:
        raise SourceError(f"{where}: a prefix is none") from None
    if np.any((keys >= END) | ((keys >= 1 << 24) & (keys < V6))):
        raise SourceError(f"{where}: a prefix is none")
    return keys


def _column(where: str, name: str, values: Sequence[object], rows: int) -> Array:
    kinds = _NUMBERS if name in _REQUIRED else _KNOWN
    if len(values) != rows or not kinds.issuperset(map(type, values)):
        raise SourceError(f"{where}: {name} is not a number of each prefix")
    try:
        return np.array(values, dtype=float)
    except OverflowError:
        raise SourceError(f"{where}: {name} has a number that is none") from None


def _possible(rows: PrefixRows) -> Array:
    """Bool, shape (rows,)."""
    good = np.ones(len(rows), dtype=bool)
    for name, values in rows.measures.items():
        known = np.isfinite(values)
        inside = (values >= _LEAST.get(name, 0.0)) & (values <= _LARGEST.get(name, MOST_BYTES))
        good &= np.where(known, inside, np.isnan(values) & (name not in _REQUIRED))
    return good


PERCENTILES = (5, 10)
LEVELS = ("delivery_rate", "goodput")
"""Measures of which low percentiles are shown, where the source has them; bytes a second."""


def levels_of(
    chosen: Sequence[Chosen], rows: PrefixRows, thresholds: Thresholds
) -> dict[str, Levels]:
    """By measure, PERCENTILES over the prefixes that are past their warm-up."""
    past = [own for own in chosen if rows.round - own.since > thresholds.warmup]
    groups = [
        _places([own for own in past if own.held_out is held], rows) for held in (False, True)
    ]
    return {
        name: Levels(*(_percentiles(rows.measures[name][places]) for places in groups))
        for name in LEVELS
        if name in rows.measures
    }


def _places(chosen: Sequence[Chosen], rows: PrefixRows) -> Any:
    keys = np.array([number_of(own.prefix) for own in chosen], dtype=np.uint64)
    if not len(rows) or not len(keys):
        return np.empty(0, dtype=np.intp)
    at = np.minimum(np.searchsorted(rows.prefixes, keys), len(rows) - 1)
    return at[rows.prefixes[at] == keys]


def _percentiles(values: Any) -> list[float] | None:
    known = values[~np.isnan(values)]
    return [float(own) for own in np.percentile(known, PERCENTILES)] if len(known) else None
