# SPDX-License-Identifier: Apache-2.0
"""The kernel's zones of memory for things of one size, by vmstat(8)."""

from typing import Dict, NamedTuple, Optional, Tuple

from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed

COLUMNS = ("SIZE", "LIMIT", "USED", "FREE", "REQ", "FAIL", "SLEEP")
"""Behind the name of a zone; releases since 13 have one more."""


class Zone(NamedTuple):
    """Requests that were refused (``failed``), and that had to wait (``slept``), since the boot."""

    limit: int
    used: int
    failed: int
    slept: int


def zones(host: Host) -> Dict[str, Zone]:
    """All there are, by name; Failed where they are not told, or not all of a line is."""
    output = host.run("vmstat", "-z")
    head, *lines = output.splitlines() or [""]
    if head.split()[: 1 + len(COLUMNS)] != ["ITEM", *COLUMNS] or not output.endswith("\n"):
        raise Failed("vmstat -z tells no table of zones")
    return dict(_row(line) for line in lines if line.strip())


def _row(line: str) -> Tuple[str, Zone]:
    """Name and numbers. Sums over zones would lose one that is passed over."""
    name, _, told = line.rpartition(":")
    columns = [word.strip() for word in told.split(",")]
    if not name or len(columns) < len(COLUMNS) or not all(word.isdigit() for word in columns):
        raise Failed(f"vmstat -z tells an odd line: {line[:80]}")
    row = dict(zip(COLUMNS, map(int, columns)))
    return name, Zone(row["LIMIT"], row["USED"], row["FAIL"], row["SLEEP"])


def waits_for(known: Dict[str, Zone], kind: str) -> Optional[int]:
    """Requests to the zones of a ``kind`` of things that found none; None without such a zone."""
    own = [zone.failed + zone.slept for name, zone in known.items() if kind in name]
    return sum(own) if own else None
