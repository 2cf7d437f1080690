# SPDX-License-Identifier: Apache-2.0
"""The kinds of settings, as the catalogue knows them; the host agent has one module for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The star stands for every interface of a host that is up.
_INTERFACE = {"interface": r"[A-Za-z0-9_.-]+|\*"}
_SERVICE = {"service": r"[A-Za-z0-9@:._-]+"}


@dataclass(frozen=True)
class Kind:
    """A kind of setting: the fields that say what is set, and what it asks of a host at least.

    A value is text, or it has ``parts``: ``numbers``, ``switches`` (numbers, on and off) or
    ``words`` (numbers and words).
    """

    target: Mapping[str, str]
    disruption: str
    parts: str = ""


KINDS: Mapping[str, Kind] = {
    "unit": Kind({"unit": r"[A-Za-z0-9@:._-]+\.(service|socket|timer|path)"}, "live", "switches"),
    "sysctl": Kind({"key": r"[a-z0-9_][A-Za-z0-9_-]*([./][A-Za-z0-9_-]+)*"}, "live"),
    "nic.channels": Kind(_INTERFACE, "drain", "numbers"),
    # Nearly every driver stops its queues, and most take the link down, while rings change.
    "nic.ring": Kind(_INTERFACE, "drain", "numbers"),
    # Some drivers stop their queues for another table (bnxt_en).
    "nic.rss": Kind(_INTERFACE, "drain", "words"),
    # Drivers reset the link for some of them (ntuple above all).
    "nic.features": Kind(_INTERFACE, "drain", "switches"),
    # Of the drivers we know only ixgbe starts the interface anew, where LRO comes or goes with it.
    "nic.coalesce": Kind(_INTERFACE, "live", "switches"),
    "nic.irq_affinity": Kind(_INTERFACE, "live"),
    "nic.xps": Kind(_INTERFACE, "live"),
    "nic.rps": Kind(_INTERFACE, "live"),
    "nic.rfs": Kind(_INTERFACE, "live"),
    "route.metric": Kind(
        {"family": r"inet6?", "route": r"default|[0-9A-Fa-f.:]{2,39}/[0-9]{1,3}"}, "live", "words"
    ),
    "memory.thp": Kind({"file": r"enabled|defrag"}, "live"),
    "memory.watermarks": Kind(
        {"parameter": r"min_free_kbytes|watermark_scale_factor|watermark_boost_factor"}, "live"
    ),
    "memory.tmpfs_policy": Kind({"mount": r"/[!-~]{0,200}"}, "live"),
    "sched.migration_cost": Kind({}, "live"),
    "file": Kind({"path": r"(/[A-Za-z0-9_@+-][A-Za-z0-9_@+:,.-]*)+"}, "live"),
    "service.property": Kind({**_SERVICE, "property": r"[A-Za-z]+"}, "restart"),
    "memory.numa_policy": Kind(_SERVICE, "restart"),
    "cpu.service_affinity": Kind(_SERVICE, "restart"),
}
