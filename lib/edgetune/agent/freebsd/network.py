# SPDX-License-Identifier: Apache-2.0
"""Interfaces, addresses, gateways and connections of a host with FreeBSD."""

import re
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed

# Made up by software: their packets are those of other interfaces, or leave no host.
MADE_UP = re.compile(
    r"(lo|lagg|vlan|bridge|tap|tun|epair|gif|gre|enc|pflog|pfsync|ipfw|stf|wg|vxlan|carp)[0-9]+"
)
OPEN_STATES = ("ESTABLISHED", "FIN_WAIT_1", "CLOSE_WAIT")
"""As on Linux: established, FIN sent, and closed by the other side only."""
LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")


class Interface(NamedTuple):
    """What ifconfig(8) tells of one; ``speed`` in Mbit/s."""

    name: str
    up: bool
    speed: Optional[int]
    addresses: List[str]


def driver_and_unit(interface: str) -> Tuple[str, str]:
    """Of an interface as drivers name theirs: ``ix`` and ``0`` of ``ix0``."""
    driver = interface.rstrip("0123456789")
    return driver, interface[len(driver) :]


def interfaces(host: Host) -> List[Interface]:
    """Every interface; Failed where ifconfig(8) does not tell them."""
    blocks = re.split(r"^(?=\S)", host.run("ifconfig", "-a"), flags=re.MULTILINE)
    found = [_interface(block) for block in blocks if block.strip()]
    if not found:
        raise Failed("ifconfig -a tells no interface")
    return found


def carrying(host: Host) -> List[Interface]:
    """Those that carry the traffic of a host."""
    return [own for own in interfaces(host) if not MADE_UP.fullmatch(own.name)]


def _interface(block: str) -> Interface:
    head = re.match(r"(\S+): flags=[0-9a-f]+<([^>]*)>", block)
    if head is None:
        raise Failed(f"ifconfig -a tells an odd line: {block.splitlines()[0][:80]}")
    status = re.search(r"^\s+status: (.*)$", block, re.MULTILINE)
    is_up = "UP" in head.group(2).split(",")
    # Some, such as those of tunnels, have no carrier, and no status.
    carries = status is None or status.group(1).strip() in ("active", "associated", "no ring")
    speed = re.search(r"\smedia: .*?\b([0-9]+)(G?)[Bb]ase", block)
    rate = int(speed.group(1)) * (1000 if speed.group(2) else 1) if speed else None
    told = re.findall(r"^\s+inet6? ([0-9A-Fa-f.:]+)", block, re.MULTILINE)
    return Interface(head.group(1), is_up and carries, rate, told)


def gateways(host: Host) -> Iterator[str]:
    """Those of the default routes; none for a family that has none."""
    for family in ("-inet", "-inet6"):
        status, output, _ = host.attempt("route", "-n", "get", family, "default")
        found = re.search(r"^\s+gateway: (\S+)$", output, re.MULTILINE)
        if status == 0 and found:
            yield found.group(1)


def sessions(host: Host, ports: Sequence[int]) -> int:
    """TCP connections to the ports, from elsewhere, over which something can still come or go.

    Failed where netstat(1) does not tell them.
    """
    return sum(
        int(port) in ports and state in OPEN_STATES and remote not in LOOPBACK
        for port, remote, state in _connections(host)
    )


def _connections(host: Host) -> Iterator[Tuple[str, str, str]]:
    lines = host.run("netstat", "-anW", "-p", "tcp").splitlines()
    if not lines or not lines[0].startswith("Active Internet connections"):
        raise Failed("netstat -anW -p tcp tells no table of connections")
    for line in lines:
        words = line.split()
        if re.match("tcp[46]", line) and len(words) >= 6:
            port = words[3].rpartition(".")[2]
            if port.isdigit():
                yield port, words[4].rpartition(".")[0].partition("%")[0], words[5]
