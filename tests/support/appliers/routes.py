# SPDX-License-Identifier: Apache-2.0
"""A host in a network namespace of its own, with two ways to its clients in another one.

Its files are in a private root; its ip(8) is the real one.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgetune.agent.appliers.routes import OURS
from edgetune.agent.kinds.route_metric import Route, route_lines
from lab.pop import network
from tests.support.agent_root import AgentRoot, NearRoot, until
from tests.support.appliers import V4_CLIENTS, Double, alone

USUAL = "reno"
"""The one that a namespace may take without asking."""


def ip(words: str) -> str:
    """Run ip(8), here inside of the namespace."""
    return subprocess.run(
        ["ip", *words.split()], check=True, timeout=60, stdout=subprocess.PIPE, text=True
    ).stdout


class RoutesDouble(Double):
    """The body of ``hosts`` is inside the host's namespace; ``clients`` is that of its clients."""

    name = "routes"

    def __init__(self, root: AgentRoot, clients: int) -> None:
        super().__init__(root)
        self.clients = clients
        program = f'#!/bin/sh\nexec {shutil.which("ip")} "$@"\n'
        root.write("usr/local/sbin/ip", program).chmod(0o755)

    @property
    def treated(self) -> dict[str, str]:
        return {route.destination: route.option("congctl") for route in self.ours}

    @property
    def ours(self) -> list[Route]:
        """All routes of our protocol."""
        text = ip(f"-4 -d -o route show proto {OURS}") + ip(f"-6 -d -o route show proto {OURS}")
        return [Route(line) for line in route_lines(text)]

    @property
    def others(self) -> list[str]:
        """All routes that are not ours."""
        text = ip("-4 -d -o route show table all") + ip("-6 -d -o route show table all")
        return sorted(line for line in text.splitlines() if f"proto {OURS}" not in line)

    def fail(self) -> None:
        ip("rule add pref 100 from all lookup 77")

    def be_somebody_elses(self) -> None:
        ip(f"route add 10.99.0.0/24 via 10.1.0.2 proto {OURS}")

    def boot(self) -> None:
        for family in ("-4", "-6"):
            ip(f"{family} route flush proto {OURS}")
        self.root.new_boot_id()
        self.root.run_hook()

    def algorithms(self, *clients: str) -> list[str]:
        """What the kernel chose for the connection that the host accepts from each client."""
        return [self._algorithm(client) for client in clients]

    def _algorithm(self, client: str) -> str:
        with self.connected(client) as (accepted, _):
            name = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            found = name.split(b"\0")[0].decode()
            port = accepted.getsockname()[1]
            seen = subprocess.run(
                ["ss", "-tinH", "sport", "=", f":{port}"],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
            assert f"\t {found} " in seen
            return found

    @contextmanager
    def connected(self, client: str) -> Iterator[tuple[socket.socket, socket.socket]]:
        """A connection from a client: the host's side, and the client's."""
        family = socket.AF_INET6 if ":" in client else socket.AF_INET
        own = "fd00:1::1" if ":" in client else "10.1.0.1"
        with socket.socket(family) as listening:
            listening.bind((own, 0))
            listening.listen()
            with network.inside(self.clients):
                peer = socket.socket(family)
            with peer:
                peer.bind((client, 0))
                peer.settimeout(60)
                peer.connect(listening.getsockname()[:2])
                accepted, _ = listening.accept()
                with accepted:
                    yield accepted, peer


@contextmanager
def hosts(folder: Path) -> Iterator[RoutesDouble]:
    """A host of that kind, asked in this process."""
    with host_at(NearRoot(folder / "host")) as double:
        yield double


@contextmanager
def host_at(root: AgentRoot) -> Iterator[RoutesDouble]:
    """The same with files at any root; it skips without root or iproute2."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("routes need root and iproute2")
    here, there = network.new_namespace(), network.new_namespace()
    try:
        with network.inside(there):
            _wire_clients()
        with network.inside(here):
            assert {name for _, name in socket.if_nameindex()} <= {"lo"}
            ip("link set lo up")
            _wire(there)
            # Of this namespace alone.
            Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text(USUAL)
            with alone(RoutesDouble(root, there)) as double:
                yield double
    finally:
        os.close(here)
        os.close(there)


def _wire_clients() -> None:
    ip("link set lo up")
    for address in (V4_CLIENTS.replace("0/24", "7/32"), "10.20.2.7/32"):
        ip(f"address add {address} dev lo")
    for address in ("fd00:20:0:100::7/128", "fd00:20:0:200::7/128"):
        ip(f"-6 address add {address} dev lo nodad")


def _wire(there: int) -> None:
    path = f"/proc/{os.getpid()}/fd/{there}"
    for number in (1, 2):
        ip(f"link add w{number} type veth peer name c{number}")
        ip(f"link set c{number} netns {path}")
        _number(f"w{number}", number, 1)
        with network.inside(there):
            _number(f"c{number}", number, 2)
    ip("route add default via 10.1.0.2")
    ip("-6 route add default via fd00:1::2")
    with network.inside(there):
        ip("route add default via 10.1.0.1")
        ip("-6 route add default via fd00:1::1")
    # A worker of the kernel adds these, also without duplicate address detection.
    assert until(lambda: ip("-6 route show table local").count("local fe80::1 ") == 2)


def _number(name: str, wire: int, end: int) -> None:
    ip(f"link set {name} addrgenmode none")
    ip(f"link set {name} up")
    ip(f"address add 10.{wire}.0.{end}/24 dev {name}")
    ip(f"-6 address add fd00:{wire}::{end}/64 dev {name} nodad")
    ip(f"-6 address add fe80::{end}/64 dev {name} nodad")
