# SPDX-License-Identifier: Apache-2.0
"""The kernel's zones of memory for things of one size, by vmstat(8)."""

from typing import Dict, NamedTuple

from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.protocol import Failed

COLUMNS = ("SIZE", "LIMIT", "USED", "FREE", "REQ", "FAIL", "SLEEP")
"""Behind the name of a zone; releases since 13 have one more."""


class Zone(NamedTuple):
    """Requests that were refused (``failed``), and that had to wait (``slept``), since the boot."""

    limit: int
    used: int
    failed: int
    slept: int


def zones(host: Host) -> Dict[str, Zone]:
    """All there are, by name; Failed where they are not told."""
    head, *lines = host.run("vmstat", "-z").splitlines() or [""]
    if head.split()[: 1 + len(COLUMNS)] != ["ITEM", *COLUMNS]:
        raise Failed("vmstat -z tells no table of zones")
    found = {}
    for line in lines:
        name, _, told = line.rpartition(":")
        columns = [word.strip() for word in told.split(",")]
        if name and len(columns) >= len(COLUMNS) and all(word.isdigit() for word in columns):
            row = dict(zip(COLUMNS, map(int, columns)))
            found[name] = Zone(row["LIMIT"], row["USED"], row["FAIL"], row["SLEEP"])
    return found
