# SPDX-License-Identifier: Apache-2.0
"""Anonymous network namespaces and the wires between them.

A namespace is a file descriptor, never a name in /run/netns: the kernel removes it, with all its
interfaces, as soon as nobody holds it any more.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from . import kernel

BRIDGE = "br0"
QUEUES = "numtxqueues 4 numrxqueues 4"
# Kernels need no netem for this one. Small packets count as larger ones (mpu), so that each of
# them costs time: what goes to and fro, as SSH does, gets slower by tenths of a second.
SLOW = "tbf rate {kbit}kbit mpu 512 burst 1600 limit {queue}"
SLOW_KBIT = 1000
SLOW_QUEUE = 32_000  # bytes: a quarter of a second


@contextmanager
def inside(namespace: int) -> Iterator[None]:
    """Run the body in that namespace; what it starts there stays there."""
    with kernel.own_namespaces_kept(net=kernel.NEW_NET):
        kernel.setns(namespace, kernel.NEW_NET)
        yield


def new_namespace() -> int:
    """File descriptor of a fresh network namespace; the caller stays in its own."""
    with kernel.own_namespaces_kept(net=kernel.NEW_NET):
        kernel.unshare(kernel.NEW_NET)
        return os.open("/proc/self/ns/net", os.O_RDONLY)


def make_bridge() -> None:
    """The PoP's switch, in the present namespace."""
    _ip([f"link add {BRIDGE} type bridge", f"link set {BRIDGE} up", "link set lo up"])


def connect(port: str, namespace: int, mac: str, up: bool = True) -> None:
    """Wire a new eth0 of `namespace`, with four queues, to port `port` of the bridge.

    A port left by an earlier life of the same host is replaced. Not `up`: the cable stays cut.
    """
    disconnect(port)
    peer = f"peer name eth0 address {mac} {QUEUES} netns /proc/self/fd/{namespace}"
    state = "up" if up else "down"
    _ip(
        [f"link add {port} {QUEUES} type veth {peer}", f"link set {port} master {BRIDGE} {state}"],
        keep=(namespace,),
    )


def plug_in(namespace: int, several: str, one: str) -> None:
    """Two taps at the cable of `namespace`: what QEMU plugs its cards into, the first with
    several queues.
    """
    switch = [f"link add {BRIDGE} type bridge", f"link set {BRIDGE} up"]
    taps = [f"tuntap add dev {several} mode tap multi_queue", f"tuntap add dev {one} mode tap"]
    ends = [f"link set {end} master {BRIDGE} up" for end in ("eth0", several, one)]
    with inside(namespace):
        _ip([*switch, *taps, *ends])


def set_link(port: str, up: bool) -> None:
    """Plug the cable of a port of the bridge in, or cut it: the other end loses its carrier."""
    _ip([f"link set {port} {'up' if up else 'down'}"])


def slow_down(port: str, namespace: int, share: float) -> None:
    """Let only `share` times 1 Mbit/s through the cable, in both directions."""
    limits = SLOW.format(kbit=round(share * SLOW_KBIT), queue=round(share * SLOW_QUEUE))
    tc(f"qdisc replace dev {port} root {limits}")
    with inside(namespace):
        tc(f"qdisc replace dev eth0 root {limits}")


def speed_up(port: str, namespace: int) -> None:
    """Undo `slow_down`; a queue of its own does not come back to the port by itself."""
    tc(f"qdisc delete dev {port} root")
    with inside(namespace):
        tc("qdisc delete dev eth0 root")


def disconnect(port: str) -> None:
    """Pull the wire out of the bridge, if there is one."""
    command = ["ip", "link", "delete", port]
    subprocess.run(command, stderr=subprocess.DEVNULL, check=False)


def set_addresses(namespace: int, addresses: Sequence[str]) -> None:
    """Give eth0 of `namespace` its addresses in the PoP's /16 and switch it on."""
    lines = [f"address add {address}/16 dev eth0" for address in addresses]
    with inside(namespace):
        _ip(["link set lo up", *lines, "link set eth0 up"])


def rules(lines: Iterable[str]) -> None:
    """Rules of policy routing of the present namespace."""
    _ip([f"rule add {line}" for line in lines])


def set_route(namespace: int, destination: str, gateway: str) -> None:
    """A route of eth0 of `namespace`."""
    with inside(namespace):
        _ip([f"route add {destination} via {gateway} dev eth0"])


def know_neighbours(namespace: int, neighbours: dict[str, str]) -> None:
    """Fixed MACs {address: mac} for eth0: a host that boots is reached at its first packet."""
    entry = "neighbour add {} lladdr {} dev eth0 nud permanent"
    with inside(namespace):
        _ip([entry.format(address, mac) for address, mac in neighbours.items()])


def tc(*lines: str) -> None:
    """Queues of the present namespace; OSError with what `tc` says."""
    _batch("tc", lines)


def _ip(lines: Sequence[str], keep: Sequence[int] = ()) -> None:
    _batch("ip", lines, keep)


def _batch(program: str, lines: Sequence[str], keep: Sequence[int] = ()) -> None:
    command = [program, "-batch", "-"]
    text = "\n".join(lines) + "\n"
    done = subprocess.run(command, input=text, text=True, capture_output=True, pass_fds=keep)
    if done.returncode != 0:
        raise OSError(f"{program}: {done.stderr.strip().splitlines()[0]}")
