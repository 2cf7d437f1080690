# SPDX-License-Identifier: Apache-2.0
"""In how much of a window each metric was measured on each host.

*Never measured*, *measured zero* and *stopped being measured* are three things. The sums of events
do not tell them apart; the time in which these events could be counted does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.baseline import Measured

Array = Any


@dataclass(frozen=True)
class Coverage:
    """Seconds of a window, every array of shape (hosts,).

    ``watched`` are those between samples of one boot. ``known`` are of these, by metric, those in
    whose slots the metric and what it is compared per are known. ``unread`` are, by counter or
    gauge, those in which it is not.
    """

    watched: Array
    known: Mapping[str, Array]
    unread: Mapping[str, Array]


def join_coverages(parts: Sequence[Coverage]) -> Coverage:
    """The coverage of windows that follow each other, of the same hosts and metrics."""
    first = parts[0]
    return Coverage(
        np.sum([part.watched for part in parts], axis=0),
        {name: np.sum([part.known[name] for part in parts], axis=0) for name in first.known},
        {name: np.sum([part.unread[name] for part in parts], axis=0) for name in first.unread},
    )


def measured_of(hosts: Sequence[str], coverage: Coverage, seconds: float) -> Measured:
    """A coverage as documents keep it, of a window of so many seconds."""
    unread = {name: _by_host(hosts, values) for name, values in coverage.unread.items()}
    lost = {name: {h: s for h, s in by.items() if s > 0} for name, by in unread.items()}
    return Measured(
        seconds=round(seconds, 3),
        watched=_by_host(hosts, coverage.watched),
        known={name: _by_host(hosts, values) for name, values in coverage.known.items()},
        unread={name: by for name, by in lost.items() if by},
    )


def merge_measured(parts: Sequence[Measured | None]) -> Measured | None:
    """The time measured of consecutive blocks as one; None if that of one is not known."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not known:
        return None
    return Measured(
        seconds=round(sum(part.seconds for part in known), 3),
        watched=_summed([part.watched for part in known]),
        known=_summed_by_name([part.known for part in known]),
        unread=_summed_by_name([part.unread for part in known]),
        why={host: why for part in known for host, why in part.why.items()},
    )


def by_hosts(parts: Sequence[Mapping[str, float | None]], hosts: Sequence[str]) -> Array:
    """Values of hosts in some documents, shape (documents, hosts); NaN where one is not known."""
    wanted = [*hosts]
    # The hosts of all blocks are mostly the same, in one order.
    known = [[*part.values()] if [*part] == wanted else [*map(part.get, wanted)] for part in parts]
    return np.array(known, dtype=float).reshape(len(parts), len(wanted))


def _by_host(hosts: Sequence[str], values: Array) -> dict[str, float]:
    rounded: Array = np.round(values, 1)
    return dict(zip(hosts, rounded.tolist()))


def _summed(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    hosts = list(dict.fromkeys(chain.from_iterable(parts)))
    return _by_host(hosts, np.nansum(by_hosts(parts, hosts), axis=0))


def _summed_by_name(
    parts: Sequence[Mapping[str, Mapping[str, float]]],
) -> dict[str, dict[str, float]]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: _summed([part.get(name, {}) for part in parts]) for name in names}
