# SPDX-License-Identifier: Apache-2.0
"""What a simulated host counts, and the traffic that makes it grow."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

CPUS = 2
PACKETS = 40_000.0  # received per second by a host with its even share of the PoP's traffic
CONNECTIONS = 50.0
INTERRUPTS = 4_000.0  # per second of each queue
NO_DROPS_FROM = 1024
# Packets that the card misses per second: a model of what the snoop mode does, not hardware.
MISSED = {"early": 10.0, "cluster_on_die": 5.0, "home_osb": 3.0, "home": 1.0}

NIC_COUNTERS = (
    *("rx_packets", "rx_bytes", "rx_dropped", "rx_missed_errors", "rx_errors"),
    *("tx_packets", "tx_bytes", "tx_dropped", "tx_errors"),
)
TCP_EXT = ("SyncookiesSent", "SyncookiesRecv", "TW", "ListenOverflows", "ListenDrops")
TCP = ("ActiveOpens", "PassiveOpens", "CurrEstab", "InSegs", "OutSegs", "RetransSegs", "InErrs")


def drops_per_second(backlog: int) -> float:
    """Connections dropped by an accept queue of that length: 40 at 2, 4 at 8, none from 1024 on."""
    if backlog >= NO_DROPS_FROM:
        return 0.0
    return 40.0 * math.pow(2.0 / max(backlog, 1), math.log(10, 4))


class Surge:
    """The load of the whole PoP against its usual one: it wanders slowly around 1."""

    MEMORY = 10.0  # s
    SPREAD = 0.2  # standard deviation of its logarithm

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._log = chance.gauss(0, self.SPREAD)

    def after(self, seconds: float) -> float:
        """The factor after that many seconds more."""
        kept = math.exp(-seconds / self.MEMORY)
        self._log = kept * self._log + self._chance.gauss(0, self.SPREAD * math.sqrt(1 - kept**2))
        return math.exp(self._log)


class Counters:
    """The counters of one boot of a host; they begin at zero and only grow."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.values = dict.fromkeys((*NIC_COUNTERS, *TCP_EXT, *TCP, "interrupts"), 0)
        # In seconds.
        self.busy = [0.0] * CPUS
        self.queues: Mapping[str, int] = {}
        self.uptime = 0.0
        self._written: dict[str, str] = {}

    def grow(
        self,
        seconds: float,
        backlog: int,
        load: float,
        snoop_mode: str = "early",
        resent: float = 0.002,
        queues: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Let traffic of `load` (1 is usual, 0 is none) come in for that long; `resent` is the
        share of segments that are sent again. The card has so many `queues` of each side.
        """
        self.uptime += seconds
        packets = self._poisson(PACKETS * seconds * load)
        connections = self._poisson(CONNECTIONS * seconds * load)
        drops = self._poisson(drops_per_second(backlog) * seconds * load)
        added = {"ListenDrops": drops, "ListenOverflows": drops, "PassiveOpens": connections}
        added.update(rx_packets=packets, tx_packets=packets, InSegs=packets, OutSegs=packets)
        added.update(rx_bytes=packets * 200, tx_bytes=packets * 1200)
        added["rx_missed_errors"] = self._poisson(MISSED[snoop_mode] * seconds * load)
        added["RetransSegs"] = self._poisson(resent * packets)
        self.queues = queues
        # A queue that has more to do brings more packets at once.
        raised = INTERRUPTS * sum(queues.values()) * min(1.0, 2 * load)
        added["interrupts"] = self._poisson(raised * seconds)
        for name, amount in added.items():
            self.values[name] += amount
        for cpu in range(CPUS):
            self.busy[cpu] += seconds * min(0.9, 0.1 * load * self._chance.uniform(0.8, 1.2))

    def write(self, root: Path, files: Mapping[str, str]) -> None:
        """Bring `files` up to date, by path; a reader sees one as it was or as it is."""
        for path, text in files.items():
            if self._written.get(path) != text:
                replace(root / path, text)
                self._written[path] = text

    def _poisson(self, mean: float) -> int:
        if mean > 30:
            return max(0, round(self._chance.gauss(mean, math.sqrt(mean))))
        limit, count, product = math.exp(-mean), 0, self._chance.random()
        while product > limit:
            count += 1
            product *= self._chance.random()
        return count


def replace(path: Path, text: str) -> None:
    """Write a file in one step."""
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
