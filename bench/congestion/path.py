# SPDX-License-Identifier: Apache-2.0
"""What a route of ours does for clients behind a long path that loses packets.

Kernels without netem need another one for it: a process carries the packets between two TUN
devices, in namespaces of their own. It keeps each for a while, lets so many bytes a second pass,
and loses some of those to the clients.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import socket
import struct
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from threading import Event, Thread

from bench._table import BenchError
from edgetune.hosts.agent.appliers.base import Configuration, Wanted
from edgetune.hosts.agent.appliers.routes import Routes
from edgetune.hosts.agent.host import Host
from lab.pop import network

DELAY, LOSS, RATE = 0.02, 0.02, 1.25e6
"""Seconds each way; the share of packets to clients that is lost; bytes a second."""

CHOSEN, OTHER = "10.20.1.7", "10.20.2.7"
"""A client of a prefix that is chosen, and of one that is not."""

_HOST, _ROUTER = "10.1.0.1", "10.1.0.2"
_QUEUE = 0.1
_IFF_TUN_NO_PI, _TUNSETIFF = 0x1001, 0x400454CA
_LARGEST = 1 << 16


@dataclass(frozen=True)
class Goodput:
    """Medians in bytes a second, of so many turns of each, and the congestion controls."""

    turns: int
    chosen: float
    other: float
    algorithms: tuple[str, str]


def goodput(turns: int, seconds: float) -> Goodput:
    """Each client loads as much as it can in its turn, alone; others than the chosen have CUBIC."""
    if os.geteuid() != 0:
        raise BenchError("the path is between namespaces: run it as root")
    here, there = network.new_namespace(), network.new_namespace()
    with ExitStack() as stack:
        stack.callback(os.close, here)
        stack.callback(os.close, there)
        with network.inside(there):
            far = _tun("t1")
            stack.callback(os.close, far)
            _ip("link set lo up", f"address add {_ROUTER}/24 dev t1", "link set t1 up")
            _ip(f"address add {CHOSEN}/32 dev lo", f"address add {OTHER}/32 dev lo")
        stack.enter_context(network.inside(here))
        near = _tun("t0")
        stack.callback(os.close, near)
        _ip("link set lo up", f"address add {_HOST}/24 dev t0", "link set t0 up")
        _ip(f"route add default via {_ROUTER}")
        _ip(f"route add 10.20.2.0/24 via {_ROUTER} proto static congctl cubic")
        wanted = [Wanted("10.20.1.0/24", 0)]
        told = Configuration("lab", 1, "bbr", 600, wanted, "routes", "")
        skipped = Routes(Host("/")).set(told)
        if skipped:
            raise BenchError(f"no route: {skipped}")
        stack.enter_context(_carrying(near, far))
        listening = stack.enter_context(socket.create_server((_HOST, 443)))
        loaded = {
            client: [_load(listening, client, there, seconds) for _ in range(turns)]
            for client in (CHOSEN, OTHER)
        }
    rates = {client: median(rate for rate, _ in own) for client, own in loaded.items()}
    names = loaded[CHOSEN][0][1], loaded[OTHER][0][1]
    return Goodput(turns, rates[CHOSEN], rates[OTHER], names)


def _load(listening: socket.socket, client: str, there: int, seconds: float) -> tuple[float, str]:
    """Bytes a second that arrive, and the congestion control of the host's side."""
    with network.inside(there):
        peer = socket.socket()
    with peer:
        peer.bind((client, 0))
        peer.settimeout(30)
        peer.connect((_HOST, 443))
        accepted, _ = listening.accept()
        with accepted:
            name = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            accepted.setblocking(False)
            arrived, end = 0, time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                readable, writable, _ = select.select([peer], [accepted], [], left)
                if writable:
                    accepted.send(b"x" * _LARGEST)
                if readable:
                    arrived += len(peer.recv(_LARGEST))
            return arrived / seconds, name.split(b"\0")[0].decode()


def _ip(*commands: str) -> None:
    for words in commands:
        subprocess.run(["ip", *words.split()], check=True)


def _tun(name: str) -> int:
    """Of this namespace; it is there as long as the descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN_NO_PI))
    return descriptor


@contextmanager
def _carrying(near: int, far: int) -> Iterator[None]:
    """Carry packets from each end to the other while the body runs."""
    end = Event()
    ways = [(near, far, LOSS, 1), (far, near, 0.0, 2)]
    threads = [Thread(target=_carry, args=(*way, end)) for way in ways]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join()


def _carry(source: int, target: int, loss: float, seed: int, end: Event) -> None:
    dice, waiting, free = random.Random(seed), deque[tuple[float, bytes]](), 0.0
    while not end.is_set():
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            os.write(target, waiting.popleft()[1])
        left = min(0.05, waiting[0][0] - now) if waiting else 0.05
        if not select.select([source], [], [], max(0.0, left))[0]:
            continue
        packet, now = os.read(source, _LARGEST), time.monotonic()
        free = max(free, now)
        # What would wait for too long finds no room in the queue.
        if dice.random() >= loss and free - now <= _QUEUE:
            free += len(packet) / RATE
            waiting.append((free + DELAY, packet))
