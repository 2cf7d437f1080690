# SPDX-License-Identifier: Apache-2.0
"""What a host loses on receive: a model of what its snoop mode does, not hardware.

A card drops packets when memory takes a burst of them too slowly. Here the port of the bridge
towards a host hands on what the load balancer sends to its web server at a fixed pace, from a
queue whose length the snoop mode decides: what finds it full is lost. At the usual load with
`early` that is about one packet in three of a burst, with `home` hardly one. SSH and health checks
pass beside the queue.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from . import network
from .layout import LOAD_BALANCER
from .sysview import MISSED

SYMBOLS = Path("/proc/kallsyms")
SHOW_SECONDS = 0.5
NEEDED = (" htb_enqueue", " u32_classify")

QUEUE = {"early": 5, "cluster_on_die": 9, "home_osb": 14, "home": 32}  # packets
# Whatever its size, a packet counts as 1000 bytes (mpu): 1.25 of them in a millisecond.
PACE = "htb rate 10mbit burst 1000 cburst 1000 mpu 1000 quantum 2000"
RECEIVE_QUEUE = (
    "qdisc replace dev {port} root handle 1: htb",
    f"class add dev {{port}} parent 1: classid 1:1 {PACE}",
    "qdisc add dev {port} parent 1:1 handle 10: pfifo limit {packets}",
    "filter add dev {port} parent 1: protocol ip u32"
    f" match ip src {LOAD_BALANCER} match ip dport 80 0xffff flowid 1:1",
)


def has_drops() -> bool:
    """Whether the kernel can do it without loading a module for it."""
    try:
        symbols = SYMBOLS.read_text()
    except OSError:
        return False
    return all(f"{name}\n" in symbols or f"{name}\t" in symbols for name in NEEDED)


class Drops:
    """Queues in front of hosts, and what they lost shown to each host where its card counts it.

    `possible` is what `has_drops` says; where it is not, hosts lose nothing in this way.
    """

    def __init__(self, disks: Path, possible: bool) -> None:
        self.possible = possible
        self._disks = disks
        self._due = 0.0
        self._seen: dict[str, int] = {}
        self._missed: dict[str, int] = {}

    def begin(self, port: str) -> None:
        """A host boots behind a new port: it has lost nothing yet."""
        self._seen[port] = self._missed[port] = 0

    def put_queue(self, port: str, snoop_mode: str) -> None:
        """In the present namespace, on a port that has none."""
        if self.possible:
            packets = QUEUE[snoop_mode]
            network.tc(*(line.format(port=port, packets=packets) for line in RECEIVE_QUEUE))

    def show_due(self) -> float | None:
        """Bring the hosts' counters up to date when it is time; seconds until the next time."""
        if not self.possible:
            return None
        now = time.monotonic()
        if now >= self._due:
            self._due = now + SHOW_SECONDS
            self._show(_count())
        return self._due - now

    def _show(self, counted: Mapping[str, int]) -> None:
        for port, seen in self._seen.items():
            now = counted.get(port, 0)
            self._seen[port] = now
            # A queue that was made anew, or is away behind a slow cable, begins at zero.
            added = now - seen if now >= seen else now
            if added:
                self._missed[port] += added
                self._write(port)

    def _write(self, port: str) -> None:
        """In place: the file is bound into the host's /sys. It never gets shorter in one boot."""
        with suppress(FileNotFoundError):  # the host is only just making it
            file = os.open(self._disks / port / "scratch" / MISSED, os.O_WRONLY)
            os.pwrite(file, f"{self._missed[port]}\n".encode(), 0)
            os.close(file)


def _count() -> Mapping[str, int]:
    """{port: packets lost by its queue since that was made}."""
    command = ["tc", "-s", "-j", "qdisc", "show"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    queues: Iterable[dict[str, object]] = json.loads(done.stdout or "[]")
    return {str(q["dev"]): int(str(q["drops"])) for q in queues if q["kind"] == "pfifo"}
