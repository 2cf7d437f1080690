# SPDX-License-Identifier: Apache-2.0
"""What the judge has to know beside the metrics, as small JSON documents.

``{"samples": {host: n}, "newest": {host: time or None}, "flaws": {host: text},
"packets": {host: mean packets per second or None}, "idle": {host: share of its slots},
"idlest": {host: the largest of these shares in any block}, "boots": {host: [first, last]},
"measured": as ``coverage.coverage_document`` says, "load": {"median": ..., "peak": ...}}``.
Samples are the slots in which a host was sampled. The load is the PoP's, in packets per second,
None if it cannot be known. Documents of version 0.7 and before have neither "idlest" nor "boots"
nor "measured"; merged they have "measured" None.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from edgetune.metrics.coverage import coverage_document, merge_coverage_documents
from edgetune.metrics.series import REBOOTED, Window

IDLE = 0.1
"""A host with less than this share of its usual packets carries no traffic: what is left are
health checks and management."""

Array = Any
Facts = Mapping[str, Any]


def window_facts(window: Window, usual: Mapping[str, float | None] | None = None) -> dict[str, Any]:
    """The facts of one window; ``usual`` are the packets per second of its baseline."""
    rates = dict(zip(window.hosts, window.packets))
    means = {host: _mean(row) for host, row in rates.items()}
    idle = {host: _idle(row, (usual or {}).get(host)) for host, row in rates.items()}
    return {
        "samples": dict(zip(window.hosts, window.samples.tolist())),
        "newest": {host: _known(time) for host, time in zip(window.hosts, window.newest.tolist())},
        "flaws": dict(window.flaws),
        "packets": means,
        "idle": idle,
        "idlest": idle,
        "boots": {host: list(boots) for host, boots in window.boots.items()},
        "measured": coverage_document(window.hosts, window.coverage, window.end - window.start),
        "load": _load(window.packets, means),
    }


def merge_facts(parts: Sequence[Facts]) -> dict[str, Any]:
    """The facts of consecutive blocks as one.

    Means of packets and idle shares are weighted by samples; the median of the load is that of
    the blocks' medians. A host whose boot is another one than at the end of the block before has
    rebooted.
    """
    hosts = list(dict.fromkeys(host for part in parts for host in part["samples"]))
    return {
        "samples": {host: sum(part["samples"].get(host, 0) for part in parts) for host in hosts},
        "newest": {host: max(_values(parts, "newest", host), default=None) for host in hosts},
        "flaws": _flaws(parts),
        "packets": {host: _weighted(parts, "packets", host) for host in hosts},
        "idle": {host: _weighted(parts, "idle", host) or 0.0 for host in hosts},
        "idlest": {host: _idlest(parts, host) for host in hosts},
        "boots": _boots(parts),
        "measured": merge_coverage_documents([part.get("measured") for part in parts]),
        "load": {
            "median": _over(statistics.median, parts, "median"),
            "peak": _over(max, parts, "peak"),
        },
    }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _mean(row: Array) -> float | None:
    known = row[~np.isnan(row)]
    return float(known.mean()) if known.size else None


def _idle(row: Array, usual: float | None) -> float:
    known = row[~np.isnan(row)]
    return float(np.mean(known < IDLE * usual)) if usual and known.size else 0.0


def _load(packets: Array, means: Mapping[str, float | None]) -> dict[str, float | None]:
    """By slot in which any host is known; one that is not counts with its mean."""
    mean = np.array([np.nan if value is None else value for value in means.values()])
    filled = np.where(np.isnan(packets), mean[:, None], packets)
    load = np.nansum(filled, axis=0)[~np.isnan(packets).all(axis=0)]
    if not load.size:
        return {"median": None, "peak": None}
    return {"median": float(np.median(load)), "peak": float(load.max())}


def _values(parts: Sequence[Facts], fact: str, host: str) -> Iterator[Any]:
    found = (part[fact].get(host) for part in parts)
    return (value for value in found if value is not None)


def _weighted(parts: Sequence[Facts], fact: str, host: str) -> float | None:
    known = [part for part in parts if part[fact].get(host) is not None]
    weight = sum(part["samples"][host] for part in known)
    if not weight:
        return None
    return float(sum(part["samples"][host] * part[fact][host] for part in known) / weight)


def _idlest(parts: Sequence[Facts], host: str) -> float:
    return max(float(part.get("idlest", part["idle"]).get(host, 0.0)) for part in parts)


def _flaws(parts: Sequence[Facts]) -> dict[str, str]:
    """The first of each host; that of a counter before a reboot, as in a window."""
    found: dict[str, str] = {}
    boots: dict[str, list[str]] = {}
    for part in parts:
        between = dict.fromkeys(rebooted_between(boots, part), REBOOTED)
        boots.update(part.get("boots", {}))
        for host, flaw in {**between, **part["flaws"]}.items():
            if found.get(host, REBOOTED) == REBOOTED:
                found[host] = flaw
    return found


def _boots(parts: Sequence[Facts]) -> dict[str, list[str]]:
    """The first and the last of each host in all blocks together."""
    found: dict[str, list[str]] = {}
    for part in parts:
        for host, (first, last) in part.get("boots", {}).items():
            found[host] = [found.get(host, [first])[0], last]
    return found


def rebooted_between(boots: Mapping[str, Sequence[str]], later: Facts) -> list[str]:
    """Hosts whose first boot in later facts is not their last of ``boots``, as in "boots"."""
    seen = later.get("boots", {})
    return [host for host, own in boots.items() if host in seen and seen[host][0] != own[1]]


def _over(how: Any, parts: Sequence[Facts], name: str) -> float | None:
    known = [part["load"][name] for part in parts if part["load"][name] is not None]
    return float(how(known)) if known else None
