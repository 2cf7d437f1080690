# SPDX-License-Identifier: Apache-2.0
"""Where the hosts listen, and what the lab writes for the pack; the rest is as in `lab.pop`."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.pop.layout import LabError, Layout

from .balancer import BACKEND
from .freebsd.releases import RELEASES
from .requests import FORMAT, LOG

# Below the ports that systems give to outgoing connections: a host finds its own free again.
PORTS = range(20000, 32000)
TRIES = 20

POP = """
  {name}:
    min_in_service: 0.5
    region: lab
    reboot_time: 5
    health: "{health}"
    load_balancer: {{driver: haproxy, address: "{balancer}", backend: {backend}}}
    metrics: {{source: hosts, access_log: {log}, log_format: "{format}"}}
    bmc: {{credentials: lab}}
    hosts:
"""
HOST = (
    "      {0.name}: {{address: {0.ip}, port: {0.port}, rack: {0.rack}, hardware: simulated,"
    ' server: {0.name}, bmc: {{address: "{1}"}}}}\n'
)


@dataclass(frozen=True)
class Endpoint:
    """Where a host answers SSH; `address` is what its load balancer sends requests to.

    `release` is that of FreeBSD, "" with another system. Each system has a `rack`, and each release
    where there are several, so that `only=` can name them.
    """

    name: str
    ip: str
    port: int
    address: str
    system: str = "Linux"
    release: str = ""
    rack: str = "r1"


@dataclass(frozen=True)
class Site:
    """One PoP of the lab; `balancer` is the address of its load balancer."""

    name: str
    balancer: str
    hosts: tuple[Endpoint, ...]


def endpoints(
    count: int, freebsd: int = 0, releases: Sequence[str] = RELEASES[-1:]
) -> list[Endpoint]:
    """127.77.0.1 and so on with one port; where only 127.0.0.1 is there, a port for each host.

    The last `freebsd` hosts have FreeBSD, of these releases in turn.
    """
    systems = [("Linux", "", "r1")] * (count - freebsd)
    for index in range(freebsd):
        own = releases[index % len(releases)]
        systems.append(("FreeBSD", own, f"freebsd{own}" if len({*releases}) > 1 else "freebsd"))
    hosts = {f"e{index:03d}": f"127.77.0.{index + 1}" for index in range(count)}
    alone = not _can_bind("127.77.0.1", 0)
    for _ in range(TRIES):
        first = random.choice(PORTS[:-count])
        if alone:
            places = [("127.0.0.1", first + index) for index in range(count)]
        else:
            places = [(address, first) for address in hosts.values()]
        told = zip(hosts.items(), places, systems)
        found = [Endpoint(name, *at, own, *system) for (name, own), at, system in told]
        if all(_can_bind(each.ip, each.port) for each in found):
            return found
    raise LabError(f"no free port for {count} hosts on the loopback interface")


def _can_bind(ip: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((ip, port))
        except OSError:
            return False
        return True


def write_inventory(
    layout: Layout, sites: Sequence[Site], bmcs: Mapping[str, str], health: str
) -> None:
    """All hosts have one sort of hardware. `bmcs` is {host name: URL}."""
    text = "---\n# Written by `edgetune lab up --simulated`.\npops:"
    for site in sites:
        text += POP.format(
            name=site.name,
            health=health,
            balancer=site.balancer,
            backend=BACKEND,
            log=LOG,
            format=FORMAT,
        )
        text += "".join(HOST.format(host, bmcs[host.name]) for host in site.hosts)
    layout.inventory.write_text(text, encoding="utf-8")


def write_known_hosts(layout: Layout, hosts: Sequence[Endpoint], keys: Mapping[str, str]) -> None:
    """`keys` is {host name: public key}."""
    lines = [f"[{host.ip}]:{host.port} {keys[host.name]}\n" for host in hosts]
    layout.known_hosts.write_text("".join(lines), encoding="utf-8")
