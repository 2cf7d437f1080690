# SPDX-License-Identifier: Apache-2.0
"""What can be seen of a lab from outside: its load balancer, its hosts' boots, its hosts' disks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lab import pop as lab
from lab.pop.layout import Layout

FINGERPRINT = Path(__file__).resolve().parents[2] / "lab/fingerprint.py"
SETTING = "net.core.somaxconn"
# One answer per line: runtime, stored, whether the host says that it is not ready.
ABOUT = f"""
cat /proc/sys/{SETTING.replace(".", "/")}
grep -rhs '^{SETTING} *=' /etc/sysctl.d /etc/sysctl.conf | tail -n 1
"""
JOURNALS = "cat /var/lib/edgetune/tunings/*.json 2>/dev/null || true"
STORED = "own/files/etc/sysctl.d/90-edgetune-*"  # on the disk of a host
MARKER = "cat /var/lib/edgetune-not-ready 2>/dev/null && echo not-ready || true"


@dataclass(frozen=True)
class Sight:
    """One poll: {server: (admin, up)} of the load balancer, {host: boots}, and the hosts on whose
    disks a tuning is stored.
    """

    time: float
    servers: Mapping[str, tuple[str, bool]]
    boots: Mapping[str, int]
    tuned: frozenset[str] = frozenset()

    def ready(self) -> set[str]:
        """Servers that get traffic."""
        return {name for name, (admin, up) in self.servers.items() if admin == "ready" and up}


@dataclass(frozen=True)
class Event:
    """What became different between two polls; see schedule.Moment."""

    time: float
    kind: str
    host: str


@dataclass(frozen=True)
class HostState:
    """A host as its console shows it: digests by path, the setting as it runs and as it is
    stored, the states of its journals by tuning, and whether it says that it is not ready.
    """

    fingerprint: Mapping[str, str] = field(repr=False)
    runtime: str
    stored: str
    journals: Mapping[str, str]
    not_ready: bool


class Watch:
    """Polls the lab, keeps what was different from one poll to the next, tells the events."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.sights: list[Sight] = []

    def poll(self, now: float) -> list[Event]:
        """What happened since the last poll; nothing while the load balancer does not answer."""
        try:
            found = lab.balancer_state(self._home)
            boots = lab.boots(self._home)
        except lab.LabError:
            return []
        servers = {name: (str(row["admin"]), bool(row["up"])) for name, row in found.items()}
        sight = Sight(now, servers, boots, tuned_hosts(self._home, boots))
        if not self.sights:
            self.sights.append(sight)
            return []
        last = self.sights[-1]
        if replace(sight, time=last.time) == last:
            return []
        self.sights.append(sight)
        return list(_events(last, sight))


def _events(last: Sight, sight: Sight) -> Iterator[Event]:
    for name, (admin, _) in sight.servers.items():
        if admin != last.servers[name][0]:
            yield Event(sight.time, admin, name)
    for name, boots in sight.boots.items():
        if boots != last.boots[name]:
            yield Event(sight.time, "boot", name)


def tuned_hosts(home: Path, hosts: Iterable[str]) -> frozenset[str]:
    """Hosts on whose disks a tuning is stored, be they on or off."""
    disks = disks_of(home)
    return frozenset(name for name in hosts if any((disks / name).glob(STORED)))


def seen_from(home: Path) -> Path:
    """The root directory of the lab's supervisor."""
    return Path(f"/proc/{Layout(home).lock.read_text().strip()}/root")


def disks_of(home: Path) -> Path:
    """Where the disks of hosts are, seen from here."""
    return seen_from(home) / Layout(home).disks.relative_to("/")


def look_at(home: Path, host: str) -> HostState | None:
    """A host as it stands; None while it is off."""
    try:
        digests = lab.console(
            home, host, ["python3", "-I", "-S", "-", "/"], stdin=FINGERPRINT.read_bytes()
        )
        runtime, _, stored = _shell(home, host, ABOUT).partition("\n")
        journals = _documents(_shell(home, host, JOURNALS))
        marker = _shell(home, host, MARKER)
    except lab.LabError:
        return None
    return HostState(
        fingerprint=json.loads(digests),
        runtime=runtime.strip(),
        stored=stored.partition("=")[2].strip(),
        journals={str(each.get("tuning")): str(each.get("state")) for each in journals},
        not_ready=bool(marker),
    )


def look_at_all(home: Path) -> dict[str, HostState | None]:
    """Every host of the lab."""
    return {name: look_at(home, name) for name in lab.boots(home)}


def lines_of(path: Path) -> list[dict[str, Any]]:
    """A log of JSON lines; none if it is not there."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _shell(home: Path, host: str, script: str) -> str:
    return lab.console(home, host, ["sh", "-c", script])


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """JSON documents one after the other; what is damaged counts as a journal of no state."""
    decoder = json.JSONDecoder()
    rest = text.strip()
    while rest:
        try:
            document, end = decoder.raw_decode(rest)
        except ValueError:
            yield {"tuning": "damaged"}
            return
        yield document
        rest = rest[end:].strip()
