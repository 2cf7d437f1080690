# SPDX-License-Identifier: Apache-2.0
"""At which loads hosts were, and how often a metric was beyond its limit there, slot by slot.

The load of a host is the packets it received per second, as a multiple of what was usual of a host
of its stratum in the baseline. It is counted in bins, each of which is 5 % wider than the one
before. That is all that is kept of slots: for each host, and for each span of time, how many were
in a bin, and how many of these were beyond the limit.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.baseline import Loads, Part
from edgetune.base.documents.metric import READINGS, REQUESTS, Metric
from edgetune.base.documents.plan import Strata, both_groups
from edgetune.judge.quantiles import counts_in, packed_counts
from edgetune.judge.series import Window

Array = Any

WIDTH = math.log(1.05)
"""That of a bin, as a difference of the logarithms of loads."""
BINS = 114
"""From a sixteenth of the usual load to sixteen times as much; other loads are left out."""
LOGS = WIDTH * (np.arange(BINS) + 0.5 - BINS / 2)
"""The logarithm of the load in the middle of each bin."""
SPANS_BEFORE, SPANS_AFTER = 48, 4
"""Of time: in a baseline, and in a block."""
MOST_HOSTS = 32
"""Of each group that are counted: more of them would tell hardly more."""
LEAST_EVENTS = 10
"""Of a host in a slot at the limit: of fewer, chance alone is beyond it too often."""


def count_loads(
    window: Window,
    strata: Strata,
    packets: Mapping[str, float | None],
    metrics: Mapping[str, Metric],
    spans: int,
) -> dict[str, Loads]:
    """Loads of each metric with a limit. ``packets`` are each host's per second in the baseline."""
    limited = [name for name, metric in metrics.items() if metric.limit is not None]
    if not limited:
        return {}
    test, control = (_some(group) for group in both_groups(strata).named.values())
    hosts = [*test, *control]
    rows = [window.hosts.index(host) for host in hosts]
    usual = _usual(strata, packets)
    with np.errstate(divide="ignore", invalid="ignore"):
        load = window.packets[rows] / np.array([[usual.get(host, math.nan)] for host in hosts])
        bins = np.floor(np.log(load) / WIDTH + BINS / 2)
    of_time = np.arange(bins.shape[1]) * spans // bins.shape[1]
    of_control = spans * (np.arange(len(hosts)) >= len(test))
    of_span = len(hosts) + of_time + of_control[:, None]
    loads = {}
    for name in limited:
        known, beyond = _slots(window, rows, name, metrics[name])
        known &= (bins >= 0) & (bins < BINS)
        slots = [_counted(chosen, bins, of_span, spans) for chosen in (known, known & beyond)]
        loads[name] = Loads(hosts, spans, *map(packed_counts, slots))
    return loads


def _some(hosts: Sequence[str]) -> list[str]:
    """All hosts of a group; of very many some, evenly from their list."""
    many = min(len(hosts), MOST_HOSTS)
    return [hosts[number * len(hosts) // many] for number in range(many)]


def _usual(strata: Strata, packets: Mapping[str, float | None]) -> dict[str, float]:
    """By host, the packets per second that are usual in its stratum: the median."""
    medians = {}
    for groups in strata.values():
        known = [value for value in map(packets.get, groups.hosts) if value]
        if known:
            medians.update(dict.fromkeys(groups.hosts, statistics.median(known)))
    return medians


def _slots(window: Window, rows: Sequence[int], name: str, metric: Metric) -> tuple[Array, Array]:
    """In which slots a metric is known, and in which it is beyond its limit, (rows, slots) each."""
    series, per = window.metrics[name], window.exposures[name]
    events, exposure = series.events[rows], series.exposure[rows]
    at_limit = exposure * (metric.limit or 0.0) / metric.unit_of(per).scale
    known = np.isfinite(events) & (exposure > 0)
    if per not in (READINGS, REQUESTS):
        known &= at_limit >= LEAST_EVENTS
    return known, metric.sign * (events - at_limit) > 0


def _counted(which: Array, bins: Array, of_span: Array, spans: int) -> Array:
    """How many of these slots are in each bin: of each host, then of each span of time."""
    hosts, at = np.nonzero(which)
    rows = len(which) + 2 * spans
    cells = np.stack([hosts, of_span[hosts, at]]) * BINS + bins[hosts, at].astype(int)
    return np.bincount(cells.ravel(), minlength=rows * BINS).reshape(rows, BINS)


@dataclass(frozen=True)
class Slots:
    """Those of one group that are ``known``, and of these those ``beyond`` the limit: of each host
    or of each span of time, each (rows, BINS)."""

    known: Array
    beyond: Array


def nothing_of(rows: int) -> Slots:
    """No slot in so many rows."""
    return Slots(*np.zeros((2, rows, BINS)))


def counted_hosts(parts: Sequence[Part], metric: str, hosts: Sequence[str]) -> list[str]:
    """The hosts, in their order, that any of the documents counted."""
    known = {host for part in parts if metric in part.loads for host in part.loads[metric].hosts}
    return [host for host in hosts if host in known]


def slots_of(
    parts: Sequence[Part], metric: str, hosts: Sequence[str], of_control: bool
) -> tuple[Slots, Slots]:
    """By host, and by span of time, what some documents keep of a group.

    Hosts that were left out since have a part in spans of time, which tell errors alone.
    InputError of what is damaged.
    """
    loads = [part.loads[metric] for part in parts if metric in part.loads]
    by_host = [_read(each, hosts) for each in loads]
    by_span = [_read(each, _spans(each)[each.spans * of_control :][: each.spans]) for each in loads]
    return (
        Slots(*np.sum([np.zeros((2, len(hosts), BINS)), *by_host], axis=0)),
        Slots(*np.concatenate([np.zeros((2, 0, BINS)), *by_span], axis=1)),
    )


def _spans(loads: Loads) -> list[str]:
    """Names of the rows below those of hosts, whose names hold no blank."""
    return [f"span {number}" for number in range(2 * loads.spans)]


def _read(loads: Loads, rows: Sequence[str]) -> Array:
    """What stands in some rows: slots, and those beyond the limit, (2, rows, BINS)."""
    known = [*loads.hosts, *_spans(loads)]
    both = {"slots": loads.slots, "beyond": loads.beyond}
    return np.stack([counts_in(kept, known, rows, BINS, f"loads.{n}") for n, kept in both.items()])
