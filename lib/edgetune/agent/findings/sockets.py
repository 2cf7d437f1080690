# SPDX-License-Identifier: Apache-2.0
"""Connections: those that are dropped before they are accepted, and how they start."""

import json
from typing import Any, Iterator

from edgetune.agent.findings.snapshot import Snapshot
from edgetune.agent.findings.words import finding, per_s
from edgetune.agent.protocol import Json

# Connections dropped a second since the boot, where none is dropped right now: some 36 an hour.
DROPPED = 0.01
# What the tuning accept_queue asks for; from there on it is not the kernel that is short of room.
LONG = 4096


def accept_queue(snap: Snapshot) -> Iterator[Json]:
    """Connections dropped because nobody accepted them in time."""
    name = "TcpExt.ListenOverflows"
    rate, total = snap.rate("protocols", "all", name), snap.total("protocols", "all", name)
    if (snap.live and rate) or total / snap.uptime >= DROPPED:
        longest = snap.number("/proc/sys/net/core/somaxconn") or 0
        what = (
            f"full accept queues drop {per_s(rate, 'connections')} ({total} since the boot); "
            f"net.core.somaxconn is {longest}"
        )
        if longest >= LONG:
            what += ", of which a socket takes its share when it begins to listen"
        numbers = {"dropped_per_s": rate, "dropped": total, "somaxconn": longest}
        tuning = "accept_queue" if longest < LONG else None
        yield finding("accept_queue", what, numbers, tuning)


def initial_cwnd(snap: Snapshot) -> Iterator[Json]:
    """Default routes on which connections start with the kernel's 10 segments."""
    try:
        routes = json.loads(snap.run("ip", "-j", "route", "show", "default") or "[]")
        plain = [route for route in routes if not _has_own(route)]
    except (ValueError, TypeError, AttributeError):
        snap.unread["ip -j route"] = "its answer is not understood"
        return
    if plain:
        via = ", ".join(str(route.get("dev", "several paths")) for route in plain)
        what = f"connections over the default route ({via}) start with the kernel's 10 segments"
        yield finding("initial_cwnd", what, {"routes": len(plain)}, "initial_cwnd", "note")


def _has_own(route: Any) -> bool:
    return any("initcwnd" in metric for metric in route.get("metrics", []))
