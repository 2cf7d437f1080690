# SPDX-License-Identifier: Apache-2.0
"""What more than one part of the agent reads of a host, with what is mounted on it."""

import contextlib
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from edgetune.agent.host import Host
from edgetune.agent.vocabulary.values import parse_cpus

_ADDRESS = re.compile(r"\d+:\s+(\S+)\s+inet6?\s+([0-9A-Fa-f.:]+)[/\s]")


def interfaces(host: Host) -> List[str]:
    """The interfaces that carry a host's traffic: those with a device, else all but the made-up.

    With devices there, what is stacked on them (bonds, VLANs, containers) would count twice.
    """
    base = "/sys/class/net"
    names = [name for name in host.names(base) if host.exists(f"{base}/{name}/statistics")]
    physical = [name for name in names if host.exists(f"{base}/{name}/device")]
    marks = ("bridge", "tun_flags", "bonding")
    return physical or [
        name
        for name in names
        if name != "lo"
        and not name.startswith("ifb")
        and not any(host.exists(f"{base}/{name}/{mark}") for mark in marks)
    ]


class Address(NamedTuple):
    """One of an interface of this host."""

    interface: str
    address: str


def addresses(host: Host) -> List[Address]:
    """Those of its own interfaces; Failed where no program tells them."""
    if host.system == "freebsd":
        from edgetune.agent.freebsd import readings

        return [
            Address(own.name, address)
            for own in readings.interfaces(host)
            for address in own.addresses
        ]
    lines = host.run("ip", "-o", "address", "show").splitlines()
    found = [_ADDRESS.match(line) for line in lines]
    return [Address(*each.groups()) for each in found if each]


def cpus_in(host: Host, file: str) -> Set[int]:
    """The CPUs that a file lists; none when it cannot be read."""
    with contextlib.suppress(ValueError):
        return parse_cpus(host.text(file))
    return set()


def first_number(host: Host, file: str) -> Optional[float]:
    words = host.text(file).split()
    return float(words[0]) if words else None


def meminfo(host: Host) -> Dict[str, int]:
    found = re.findall(r"^(\w+):\s+([0-9]+)", host.text("/proc/meminfo"), re.MULTILINE)
    return {name: int(number) for name, number in found}


def protocol_counters(text: str) -> Iterator[Tuple[str, int]]:
    """``("Tcp.OutSegs", 12)``, ... from the pairs of lines of netstat and snmp."""
    names: Dict[str, List[str]] = {}
    for line in text.splitlines():
        protocol, _, rest = line.partition(":")
        if protocol not in names:
            names[protocol] = rest.split()
            continue
        for name, number in zip(names.pop(protocol), rest.split()):
            if number.isdigit():
                yield f"{protocol}.{name}", int(number)


MPOL = re.compile(r"(?:^|,)mpol=([a-z()= |]+)(?::([0-9]+(?:[,-][0-9]+)*))?(?=,|$)")


class Mount:
    """One line of it; ``device`` is the number of a device."""

    def __init__(self, line: str) -> None:
        own, _, of_filesystem = line.partition(" - ")
        self.device, self.root, self.point, self.flags = map(_plain, own.split()[2:6])
        self.type, source, self.options = of_filesystem.split(" ", 2)
        self.source = _plain(source)

    @property
    def policy(self) -> Optional[str]:
        """The ``mpol`` of a tmpfs, such as ``interleave:0-1``; None when it never had one."""
        found = MPOL.search(self.options)
        return ":".join(filter(None, found.groups())) if found else None


def mounts(host: Host) -> List[Mount]:
    """All of them; of several on one place the last one is seen."""
    return [Mount(line) for line in host.text("/proc/self/mountinfo").splitlines()]


def mount_over(host: Host, path: str) -> Optional[Mount]:
    """The mount that a real path below the host's root is in; None where nobody tells."""
    path = path if host.root == "/" else path[len(host.root) :]
    over = [own for own in mounts(host) if f"{path}/".startswith(own.point.rstrip("/") + "/")]
    return max(reversed(over), key=lambda own: len(own.point), default=None)


def _plain(word: str) -> str:
    """A word of it without its escapes, which few have."""
    return re.sub(r"\\([0-7]{3})", lambda own: chr(int(own.group(1), 8)), word)
