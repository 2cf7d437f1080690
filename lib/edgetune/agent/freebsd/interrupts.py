# SPDX-License-Identifier: Apache-2.0
"""CPUs of a host with FreeBSD: their domains of memory, their cores, and the interrupts they serve.

Told by sysctl(8), vmstat(8) and cpuset(1).
"""

import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from edgetune.agent.freebsd.network import driver_and_unit
from edgetune.agent.freebsd.parameters import number, told
from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Unsupported
from edgetune.agent.vocabulary.values import parse_cpus


def domains(host: Host) -> Dict[int, Set[int]]:
    """The CPUs of each domain; none where those of one of them are not told."""
    found = {}
    for domain in range(number(host, "vm.ndomains") or 1):
        try:
            text = host.attempt("cpuset", "-g", "-d", str(domain))[1]
        except Failed:
            return {}
        mask = re.search(r"mask: ([0-9, ]+)$", text.strip())
        if mask is None:
            return {}
        found[domain] = parse_cpus(mask.group(1))
    return found


def domain_of(host: Host, interface: str) -> Optional[int]:
    """The domain that a card is near; None where nobody tells.

    Interfaces of mlx5en(4) are no devices: they tell the name of theirs.
    """
    own = (
        told(host, f"dev.mce.{interface[3:]}.conf.device_name") if interface[:3] == "mce" else None
    )
    driver, unit = driver_and_unit(own or interface)
    return number(host, f"dev.{driver}.{unit}.%domain")


def cores_first(host: Host, cpus: Set[int]) -> List[int]:
    """One CPU of each core first, then their hyper-threads, whose numbers follow each other."""
    threads = number(host, "kern.smp.threads_per_core") or 1
    return sorted(cpus, key=lambda cpu: (cpu % threads, cpu))


# Drivers of iflib(9), and vtnet: their interrupts have the names of interface and queue.
_OF_QUEUE = re.compile(r"irq([0-9]+): (\S+?):([rt])xq?([0-9]+)\s")
# cxgbe(4): adapter, port, and the queue in hexadecimal. What is not ``a`` is of another interface.
_OF_ADAPTER = re.compile(r"irq([0-9]+): (t[0-9]+nex[0-9]+):([0-9a-f]+)a([0-9a-f]+)\s")
_CHELSIO = re.compile(r"(cxgbe|cxl|cc)([0-9]+)")


_MELLANOX = re.compile("mce([0-9]+)")
# Behind these are those of sending, which share the interrupt of their channel.
_OF_CHANNEL = re.compile("channel ([0-9]+) rq -?[0-9]+ cq -?[0-9]+ irq ([0-9]+)")


class Queue(NamedTuple):
    """An interrupt of a queue: ``side`` is ``rx`` or ``tx``.

    Its number ``irq`` may be another after a boot, its ``name`` is not.
    """

    irq: int
    side: str
    number: int
    name: str


def queues(host: Host, interface: str) -> List[Queue]:
    """Those of an interface, in their order; none where its driver names them otherwise."""
    mellanox = _MELLANOX.fullmatch(interface)
    if mellanox:
        return _of_channels(host, interface, mellanox.group(1))
    try:
        lines = host.run("vmstat", "-ai").splitlines()
    except Failed:
        return []
    chelsio = _CHELSIO.fullmatch(interface)
    found = _of_port(host, chelsio, lines) if chelsio else _named(interface, lines)
    return sorted(found, key=lambda queue: (queue.side, queue.number))


def _named(interface: str, lines: List[str]) -> Iterator[Queue]:
    for line in lines:
        own = _OF_QUEUE.match(line + " ")
        if own and own.group(2) == interface:
            side, number = f"{own.group(3)}x", int(own.group(4))
            yield Queue(int(own.group(1)), side, number, f"{interface}:{side}q{number}")


def _of_port(host: Host, interface: "re.Match[str]", lines: List[str]) -> Iterator[Queue]:
    adapter, port = _place(host, "dev.{}.{}".format(*interface.groups()))
    for line in lines:
        own = _OF_ADAPTER.match(line + " ")
        if own and own.group(2) == adapter and int(own.group(3), 16) == port:
            number = int(own.group(4), 16)
            yield Queue(int(own.group(1)), "rx", number, f"{interface.group()}:rxq{number}")


def channels_told_by(interface: str) -> str:
    """The parameter that has an interface of mlx5en(4) tell its interrupts; "" for others."""
    own = _MELLANOX.fullmatch(interface)
    return f"dev.mce.{own.group(1)}.conf.debug_stats" if own else ""


def _of_channels(host: Host, interface: str, unit: str) -> List[Queue]:
    """Interrupts of mlx5en(4) have no names of queues; it tells them where debug_stats is 1."""
    text = told(host, f"dev.mce.{unit}.hw_ctx_debug") or ""
    found = [(int(own.group(1)), int(own.group(2))) for own in _OF_CHANNEL.finditer(text)]
    if [channel for channel, _ in found] != [*range(len(found))]:
        return []
    if len(found) != number(host, f"dev.mce.{unit}.conf.channels"):
        return []
    return [Queue(irq, "rx", channel, f"{interface}:rxq{channel}") for channel, irq in found]


def _place(host: Host, device: str) -> Tuple[str, int]:
    """Adapter and port of an interface; ("", -1) where they are not told."""
    port = re.search(r"\bport=([0-9]+)", told(host, f"{device}.%location") or "")
    return (told(host, f"{device}.%parent") or "", int(port.group(1))) if port else ("", -1)


def cpus_of(host: Host, queue: Queue) -> Set[int]:
    """The CPUs that may serve it; Unsupported where cpuset(1) does not tell."""
    try:
        told = host.run("cpuset", "-g", "-x", str(queue.irq)).strip()
    except Failed as why:
        raise Unsupported(str(why)) from None
    mask = re.fullmatch(rf"irq {queue.irq} mask: ([0-9, ]+)", told)
    if mask is None:
        raise Unsupported(f"cpuset -g -x {queue.irq} tells no CPUs of {queue.name}")
    return parse_cpus(mask.group(1))
