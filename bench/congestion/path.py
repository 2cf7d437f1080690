# SPDX-License-Identifier: Apache-2.0
"""What clients behind slow, lossy and fast paths load, with the treatment and after it.

Kernels without netem need another one for it: a process carries the packets between two TUN
devices, in namespaces of their own. It keeps each for a while, lets so many bytes a second pass,
and loses some of those to the clients.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

from bench._table import BenchError
from edgetune.agent.appliers import APPLIERS, Applier, Configuration, Wanted, applier
from edgetune.agent.host import Host
from edgetune.agent.vocabulary.places import PREFIX_FILE_NOTE, PREFIX_FILE_SETUP
from lab.pop import network


@dataclass(frozen=True)
class Link:
    """Seconds each way; the share of packets to clients that is lost; bytes a second, which each
    client has alone unless they are shared; seconds that a packet waits at most."""

    delay: float
    loss: float
    rate: float
    is_shared: bool = False
    queue: float = 0.1


PATHS: Mapping[str, Link] = {
    "lossy": Link(0.02, 0.02, 1.25e6),
    "slow": Link(0.05, 0.0, 0.25e6),
    "fast": Link(0.002, 0.0, 2.5e6),
}
FAMILIES = ("v4", "v6")
PHASES = ("treated", "taken back")

_HOST = {"v4": "10.1.0.1", "v6": "fd00:1::1"}
_ROUTER = {"v4": "10.1.0.2", "v6": "fd00:1::2"}
_PORT = 8080
_IFF_TUN_NO_PI, _TUNSETIFF = 0x1001, 0x400454CA
_LARGEST = 1 << 16


Loaded = dict[str, Any]
"""By applier, phase, path and IP: medians in Mbit/s, with the congestion control of the host's
side, of a client of a prefix that is chosen, and of one that is held out; and their ratio."""


def load(turns: int, seconds: float) -> list[Loaded]:
    """Clients of one path load as much as they can, all at once; BenchError unless the machine is
    afterwards as it was."""
    found = []
    with site() as (clients, wire):
        for name in APPLIERS:
            with host(name) as applier:
                for phase in PHASES:
                    treat(applier, CHOSEN if phase == PHASES[0] else [])
                    for path in PATHS:
                        # The counts of one phase do not wait for packets of the one before.
                        wire.path = PATHS[path]
                        found += _turns(applier.name, phase, path, clients, turns, seconds)
    return found


def _turns(
    applier: str, phase: str, path: str, clients: int, turns: int, seconds: float
) -> list[Loaded]:
    told = [loaded(path, clients, seconds) for _ in range(turns)]
    found = []
    for family in FAMILIES:
        own = [[turn[family, is_chosen] for turn in told] for is_chosen in (True, False)]
        rates = [median(rate for rate, _ in each) for each in own]
        algorithms = ["/".join(sorted({name for _, name in each})) for each in own]
        told_both = [f"{8e-6 * rate:.2f} ({own})" for rate, own in zip(rates, algorithms)]
        where = {"applier": applier, "phase": phase, "path": path, "family": family}
        both = {"chosen": told_both[0], "held_out": told_both[1], "ratio": rates[0] / rates[1]}
        found.append({**where, **both})
    return found


def loaded(
    path: str, clients: int, seconds: float, families: Sequence[str] = FAMILIES
) -> dict[tuple[str, bool], tuple[float, str]]:
    """Bytes a second and the congestion control, by family and whether the client is of the chosen
    prefix."""
    found: dict[tuple[str, bool], tuple[float, str]] = {}

    def one(family: str, is_chosen: bool) -> None:
        found[family, is_chosen] = _load(client(path, family, is_chosen), family, clients, seconds)

    each = [(family, is_chosen) for family in families for is_chosen in (True, False)]
    threads = [Thread(target=one, args=own) for own in each]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(found) < len(each):
        raise BenchError(f"a client of the {path} path loaded nothing")
    return found


def _load(client: str, family: str, clients: int, seconds: float) -> tuple[float, str]:
    """Bytes a second that arrive, and what ss says of the host's side."""
    with asking(client, family, clients, 999_999_999) as peer:
        arrived, end = 0, time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([peer], [], [], left)[0]:
                arrived += len(peer.recv(_LARGEST))
        return arrived / seconds, _algorithm(peer.getsockname()[1])


@contextmanager
def asking(client: str, family: str, clients: int, size: int) -> Iterator[socket.socket]:
    """A new connection of a client, on which so many bytes begin to come."""
    kind = socket.AF_INET6 if family == "v6" else socket.AF_INET
    with network.inside(clients):
        peer = socket.socket(kind)
    with peer:
        peer.bind((client, 0))
        peer.settimeout(60)
        peer.connect((_HOST[family], _PORT))
        peer.sendall(f"GET /{size} HTTP/1.1\r\nHost: e\r\n\r\n".encode())
        yield peer


def _algorithm(client_port: int) -> str:
    said = subprocess.run(
        ["ss", "-tinH", "sport", "=", f":{_PORT}", "and", "dport", "=", f":{client_port}"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    return next((name for name in ("bbr", "cubic", "reno") if f"\t {name} " in said), "?")


def client(path: str, family: str, is_chosen: bool) -> str:
    number = 2 * [*PATHS].index(path) + (1 if is_chosen else 2)
    return f"10.20.{number}.7" if family == "v4" else f"fd00:20:0:{number}00::7"


CHOSEN = [client(path, family, True) for path in PATHS for family in FAMILIES]
"""The clients of chosen prefixes."""


def treat(applier: Applier, clients: Sequence[str]) -> None:
    """Give BBR to the prefixes of these clients, and to no others."""
    if not clients:
        applier.flush()
        return
    prefixes = [
        Wanted(own.replace("::7", "::/56") if ":" in own else own[: -len("7")] + "0/24", 0)
        for own in clients
    ]
    told = Configuration("lab", 1, "bbr", 600, prefixes, applier.name, "")
    skipped = applier.set(told)
    if skipped:
        raise BenchError(f"not treated: {skipped}")


@contextmanager
def host(name: str) -> Iterator[Applier]:
    """The present namespace, with files of its own and a web server, which reads the file of
    prefixes; and the applier of this name."""
    with tempfile.TemporaryDirectory() as folder, _served(Path(folder)):
        yield applier(Host(folder), name)


@contextmanager
def _served(root: Path) -> Iterator[None]:
    own = {
        "usr/local/sbin/ip": f'#!/bin/sh\nexec {shutil.which("ip")} "$@"\n',
        "usr/local/sbin/web": f"#!/bin/sh\n. {root}/web.sh\n",
        "proc/net/if_inet6": "",
        "prefixes.conf": "",
        PREFIX_FILE_NOTE[1:]: "",
        PREFIX_FILE_SETUP[1:]: json.dumps(
            {"file": "/prefixes.conf", "check": ["web", "check"], "reload": ["web", "reload"]}
        ),
    }
    for name, text in own.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
        (root / name).chmod(0o755)
    (root / PREFIX_FILE_NOTE[1:]).unlink()
    program = [sys.executable, "-m", "lab.prefix_server"]
    file = str(root / "prefixes.conf")
    servers = [
        # CUBIC, whatever the machine has: on a route, the applier would find somebody's choice.
        subprocess.Popen([*program, "serve", file, address, str(_PORT), "cubic"])
        for address in _HOST.values()
    ]
    numbers = " ".join(str(server.pid) for server in servers)
    script = f"case $1 in check) {' '.join(program)} check {file};; *) kill -HUP {numbers};; esac\n"
    (root / "web.sh").write_text(script)
    try:
        for address in _HOST.values():
            _until_served(address)
        yield
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
        for server in servers:
            server.wait()


def _until_served(address: str) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((address, _PORT), 5).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise BenchError(f"nothing serves at {address}") from None
        time.sleep(0.05)


@contextmanager
def site() -> Iterator[tuple[int, Wire]]:
    """Inside of the host's namespace: that of the clients, and the wire between them.

    BenchError unless the machine is afterwards as it was.
    """
    if os.geteuid() != 0:
        raise BenchError("the paths are between namespaces: run it as root")
    before = _routes_of_machine()
    with _namespaces() as found:
        yield found
    if _routes_of_machine() != before:
        raise BenchError("the routes of this machine have changed")


@contextmanager
def _namespaces() -> Iterator[tuple[int, Wire]]:
    here, there = network.new_namespace(), network.new_namespace()
    with ExitStack() as stack:
        stack.callback(os.close, here)
        stack.callback(os.close, there)
        with network.inside(there):
            far = _tun("t1")
            stack.callback(os.close, far)
            _ip("link set lo up", f"address add {_ROUTER['v4']}/24 dev t1")
            _ip(f"-6 address add {_ROUTER['v6']}/64 dev t1 nodad", "link set t1 up")
            for path in PATHS:
                for is_chosen in (True, False):
                    _ip(f"address add {client(path, 'v4', is_chosen)}/32 dev lo")
                    _ip(f"-6 address add {client(path, 'v6', is_chosen)}/128 dev lo nodad")
        stack.enter_context(network.inside(here))
        near = _tun("t0")
        stack.callback(os.close, near)
        _ip("link set lo up", f"address add {_HOST['v4']}/24 dev t0")
        _ip(f"-6 address add {_HOST['v6']}/64 dev t0 nodad", "link set t0 up")
        _ip(f"route add default via {_ROUTER['v4']}")
        _ip(f"-6 route add default via {_ROUTER['v6']}")
        yield there, stack.enter_context(_carrying(near, far))


def _routes_of_machine() -> Sequence[str]:
    said = subprocess.run(
        ["ip", "-o", "route", "show", "table", "all"], check=True, stdout=subprocess.PIPE, text=True
    )
    return sorted(said.stdout.splitlines())


def _ip(*commands: str) -> None:
    for words in commands:
        subprocess.run(["ip", *words.split()], check=True)


def _tun(name: str) -> int:
    """Of this namespace; it is there as long as the descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN_NO_PI))
    return descriptor


@dataclass
class Wire:
    """What clients are behind now; each has a queue of its own unless the path is shared."""

    path: Link


@contextmanager
def _carrying(near: int, far: int) -> Iterator[Wire]:
    """Carry packets from each end to the other while the body runs."""
    wire, end = Wire(next(iter(PATHS.values()))), Event()
    ways = [(near, far, True), (far, near, False)]
    threads = [Thread(target=_carry, args=(*way, wire, end)) for way in ways]
    for thread in threads:
        thread.start()
    try:
        yield wire
    finally:
        end.set()
        for thread in threads:
            thread.join()


def _carry(source: int, target: int, to_clients: bool, wire: Wire, end: Event) -> None:
    dice, waiting = random.Random(to_clients), []  # type: ignore[var-annotated]
    free: dict[bytes, float] = {}
    count = 0
    while not end.is_set():
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            os.write(target, heapq.heappop(waiting)[2])
        left = min(0.05, waiting[0][0] - now) if waiting else 0.05
        if not select.select([source], [], [], max(0.0, left))[0]:
            continue
        packet, now, path = os.read(source, _LARGEST), time.monotonic(), wire.path
        loss = path.loss if to_clients else 0.0
        client = b"" if path.is_shared else _client_of(packet, to_clients)
        begins = max(free.get(client, 0.0), now)
        # What would wait for too long finds no room in the queue.
        if dice.random() >= loss and begins - now <= path.queue:
            free[client] = begins + len(packet) / path.rate
            count += 1
            heapq.heappush(waiting, (free[client] + path.delay, count, packet))


def _client_of(packet: bytes, to_client: bool) -> bytes:
    """The address of its other end than the host."""
    if packet[0] >> 4 == 6:
        return packet[24:40] if to_client else packet[8:24]
    return packet[16:20] if to_client else packet[12:16]
