# SPDX-License-Identifier: Apache-2.0
"""What can be seen of rounds of congestion control in a lab from outside.

What a host treats is the kernel's own table of routes, of which a host of the lab has no other /24;
the number of it is in the agent's file on the host's disk. The records are in the SQLite file.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from bench.chaos.sight import Event, disks_of, seen_from
from bench.chaos.told import Known, Stands, Told, is_new
from lab import pop as lab
from lab.pop.control import request

FILE = "own/files/var/lib/edgetune/congestion.json"  # on the disk of a host
LONGEST = 0xFFFFFF  # the mask of a /24, as the kernel writes it


class RoundsWatch:
    """Looks at all hosts and at the records, and tells who was told something else."""

    def __init__(self, home: Path, store: Path) -> None:
        self._home, self._store = home, store
        # Hosts of a lab have the machine's own monotonic clock. Read once: it is compared exactly.
        self._since = time.time() - time.monotonic()
        self._inits: dict[str, tuple[int, Path]] = {}
        self.sights: list[Told] = []

    def poll(self, boots: Mapping[str, int]) -> list[Event]:
        """What happened since the last poll; ``boots`` is how often each host has booted."""
        hosts = {name: self._host(name, many) for name, many in boots.items()}
        known = self._known()
        if known is None and self.sights:
            # Somebody writes it: what it said stays so until that is over.
            known = self.sights[-1].known
        sight = Told(time.time(), hosts, known)
        before = self.sights[-1].hosts if self.sights else {}
        self.sights.append(sight)
        return [
            Event(sight.time, "told", name)
            for name, now in hosts.items()
            if now is not None and is_new(before.get(name), now)
        ]

    @property
    def chosen(self) -> frozenset[str]:
        """The prefixes that the newest round chose, held out or not."""
        return frozenset(own["prefix"] for own in self._selection())

    def _host(self, name: str, boots: int) -> Stands | None:
        """Its file is read before the routes, and once more where only these are there."""
        told = self._file(name)
        prefixes = frozenset(self._routes(name, boots))
        if not prefixes:
            return None
        told = told or self._file(name)
        if told is None:
            return Stands(0, "", prefixes, time.time())
        own, (_, ends) = told["configuration"], told["deadline"]
        return Stands(own["number"], own["checksum"], prefixes, self._since + ends)

    def _file(self, name: str) -> dict[str, Any] | None:
        path = disks_of(self._home) / name / FILE
        with suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads(path.read_bytes())
            return found
        return None

    def _routes(self, name: str, boots: int) -> Iterator[str]:
        """None while the host is off."""
        known = self._inits.get(name)
        if known is None or known[0] != boots:
            found = self._init_of(name)
            if found is None:
                return
            known = self._inits[name] = (boots, found)
        with suppress(OSError):
            for line in (known[1] / "net/route").read_text().splitlines()[1:]:
                words = line.split()
                if int(words[7], 16) == LONGEST:
                    packed = struct.pack("=I", int(words[1], 16))
                    yield f"{socket.inet_ntoa(packed)}/24"

    def _init_of(self, name: str) -> Path | None:
        """A process of the host's, in the supervisor's /proc."""
        with suppress(lab.LabError):
            descriptors = request(self._home, "namespaces", host=name)[1]
            own = os.fstat(descriptors[4]).st_ino
            for descriptor in descriptors:
                os.close(descriptor)
            for path in (seen_from(self._home) / "proc").glob("[0-9]*"):
                with suppress(OSError):
                    if (path / "ns/pid").stat().st_ino == own:
                        return path
        return None

    def _known(self) -> Known | None:
        decided = self._read("SELECT value FROM records WHERE key = 'edgetune.congestion.lab1'")
        if decided is None:
            return None
        held = frozenset(own["prefix"] for own in self._selection() if own["held_out"])
        return Known(decided["number"], decided["state"], held)

    def _selection(self) -> list[dict[str, Any]]:
        rounds = self._read("SELECT value FROM congestion WHERE pop = 'lab1'")
        text = rounds["selection"] if rounds else ""
        chosen: list[dict[str, Any]] = json.loads(text)["chosen"] if text else []
        return chosen

    def _read(self, query: str) -> dict[str, Any] | None:
        where = f"file:{self._store}?mode=ro"
        with suppress(sqlite3.Error), closing(sqlite3.connect(where, uri=True)) as database:
            row = database.execute(query).fetchone()
            found: dict[str, Any] | None = json.loads(row[0]) if row else None
            return found
        return None


def algorithms(home: Path, host: str) -> set[str]:
    """What routes of ours say of the congestion control, by the host's own ip(8)."""
    shown = lab.console(home, host, ["ip", "-o", "route", "show", "proto", "219"])
    words = [line.split() for line in shown.splitlines()]
    return {own[own.index("congctl") + 1] if "congctl" in own else "" for own in words}
