# SPDX-License-Identifier: Apache-2.0
"""What more than one verb reads of a host."""

import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from edgetune.agent.host import Host

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
        from edgetune.agent.freebsd import network

        return [
            Address(own.name, address)
            for own in network.interfaces(host)
            for address in own.addresses
        ]
    lines = host.run("ip", "-o", "address", "show").splitlines()
    found = [_ADDRESS.match(line) for line in lines]
    return [Address(*each.groups()) for each in found if each]


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
