# SPDX-License-Identifier: Apache-2.0
"""What the judge has to know beside the metrics (see ``documents.baseline``)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Callable

import numpy as np

from edgetune.base.documents.baseline import Facts, Load
from edgetune.base.documents.sample import is_same_boot
from edgetune.judge.measured_share import by_hosts, measured_of, merge_measured
from edgetune.judge.series import REBOOTED, Window

IDLE = 0.1
"""A host with less than this share of its usual packets carries no traffic: what is left are
health checks and management."""

Array = Any


def window_facts(window: Window, usual: Mapping[str, float | None] | None = None) -> Facts:
    """The facts of one window; ``usual`` are the packets per second of its baseline."""
    known = ~np.isnan(window.packets)
    slots, total = known.sum(axis=1), np.nansum(window.packets, axis=1)
    means = np.divide(total, slots, out=np.full(len(slots), np.nan), where=slots > 0)
    few = window.packets < IDLE * by_hosts([usual or {}], window.hosts).T
    idle = dict(zip(window.hosts, (few.sum(axis=1) / np.maximum(slots, 1)).tolist()))
    return Facts(
        samples=dict(zip(window.hosts, window.samples.tolist())),
        newest=_known(window.hosts, window.newest),
        flaws=dict(window.flaws),
        packets=_known(window.hosts, means),
        idle=idle,
        idlest=idle,
        boots={host: list(boots) for host, boots in window.boots.items()},
        measured=measured_of(window.hosts, window.coverage, window.end - window.start),
        load=_load(window.packets, means),
    )


def merge_facts(parts: Sequence[Facts]) -> Facts:
    """The facts of consecutive blocks as one.

    Means of packets and idle shares are weighted by samples; the median of the load is that of
    the blocks' medians. A host whose boot is another one than at the end of the block before has
    rebooted.
    """
    hosts = list(dict.fromkeys(chain.from_iterable(part.samples for part in parts)))
    samples = by_hosts([part.samples for part in parts], hosts)
    newest = by_hosts([part.newest for part in parts], hosts)
    packets = by_hosts([part.packets for part in parts], hosts)
    idle = by_hosts([part.idle for part in parts], hosts)
    idlest = by_hosts([part.at_idlest for part in parts], hosts)
    loads = [part.load for part in parts]
    return Facts(
        samples=dict(zip(hosts, np.nansum(samples, axis=0).astype(int).tolist())),
        newest=_known(hosts, np.fmax.reduce(newest)),
        flaws=_flaws(parts),
        packets=_known(hosts, _weighted(packets, samples)),
        idle=_or_zero(hosts, _weighted(idle, samples)),
        idlest=_or_zero(hosts, np.fmax.reduce(idlest)),
        boots=_boots(parts),
        measured=merge_measured([part.measured for part in parts]),
        load=Load(
            median=_over(statistics.median, [load.median for load in loads]),
            peak=_over(max, [load.peak for load in loads]),
        ),
    )


def _known(hosts: Sequence[str], values: Array) -> dict[str, float | None]:
    return {
        host: None if math.isnan(value) else value for host, value in zip(hosts, values.tolist())
    }


def _or_zero(hosts: Sequence[str], values: Array) -> dict[str, float]:
    return dict(zip(hosts, np.where(np.isnan(values), 0.0, values).tolist()))


def _weighted(values: Array, samples: Array) -> Array:
    """The mean of each host over blocks by its samples; NaN without any."""
    weights = np.where(np.isnan(values), 0.0, samples)
    weight, total = weights.sum(axis=0), np.nansum(weights * values, axis=0)
    return np.divide(total, weight, out=np.full(len(weight), np.nan), where=weight > 0)


def _load(packets: Array, means: Array) -> Load:
    """By slot in which any host is known; one that is not counts with its mean."""
    filled = np.where(np.isnan(packets), means[:, None], packets)
    load = np.nansum(filled, axis=0)[~np.isnan(packets).all(axis=0)]
    if not load.size:
        return Load(None, None)
    return Load(float(np.median(load)), float(load.max()))


def _flaws(parts: Sequence[Facts]) -> dict[str, str]:
    """The first of each host; that of a counter before a reboot, as in a window."""
    first: dict[str, str] = {}
    boots: dict[str, list[str]] = {}
    for part in parts:
        between = dict.fromkeys(rebooted_between(boots, part), REBOOTED)
        boots.update(part.boots)
        for host, flaw in {**between, **part.flaws}.items():
            if first.get(host, REBOOTED) == REBOOTED:
                first[host] = flaw
    return first


def _boots(parts: Sequence[Facts]) -> dict[str, list[str]]:
    """The first and the last of each host in all blocks together."""
    earliest: dict[str, list[str]] = {}
    latest: dict[str, list[str]] = {}
    for earlier, later in zip(parts[::-1], parts):
        earliest.update(earlier.boots)
        latest.update(later.boots)
    return {host: [earliest[host][0], boots[1]] for host, boots in latest.items()}


def rebooted_between(boots: Mapping[str, Sequence[str]], later: Facts) -> list[str]:
    """Hosts whose first boot in later facts is not their last of ``boots``, as facts have them."""
    seen = later.boots
    return [
        host
        for host, ends in boots.items()
        if host in seen and not is_same_boot(seen[host][0], ends[1])
    ]


def _over(how: Callable[[list[float]], float], loads: Sequence[float | None]) -> float | None:
    known = [load for load in loads if load is not None]
    return float(how(known)) if known else None
