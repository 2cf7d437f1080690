# SPDX-License-Identifier: Apache-2.0
"""``sessions``: how many connections are open on the ports on which a host serves."""

from typing import Sequence

from edgetune.agent.host import Host
from edgetune.agent.protocol import Json, Request

# Of include/net/tcp_states.h: established, FIN sent, and closed by the other side only.
OPEN_STATES = ("01", "04", "08")

# How 127.0.0.1 (also inside IPv6) and ::1 end in /proc/net/tcp on a little-endian host.
LOOPBACK = ("0100007F", "00000000000000000000000001000000")


def run(host: Host, request: Request) -> Json:
    """Count what is open on ``ports``; nothing is changed."""
    ports = request.wholes("ports", 1, 65535)
    request.done()
    return {"sessions": sessions(host, ports)}


def sessions(host: Host, ports: Sequence[int]) -> int:
    """TCP connections to the ports, from elsewhere, over which something can still come or go."""
    if host.system == "freebsd":
        from edgetune.agent.freebsd import readings

        return readings.sessions(host, ports)
    rows = [
        line.split()[1:4]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in host.text(table).splitlines()[1:]
    ]
    ends = tuple(f":{port:04X}" for port in ports)
    return sum(
        local.endswith(ends)
        and state in OPEN_STATES
        and not remote.rpartition(":")[0].endswith(LOOPBACK)
        for local, remote, state in rows
    )
