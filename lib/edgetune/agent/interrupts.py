# SPDX-License-Identifier: Apache-2.0
"""The interrupts of an interface's queues, and the CPUs that serve them."""

import itertools
import os
from typing import Iterator, List, NamedTuple, Sequence, Set

from edgetune.agent.host import Host
from edgetune.agent.interrupt_names import Sorted, is_named_after, sort_names
from edgetune.agent.protocol import Unsupported
from edgetune.agent.topology import cpus_in

NET = "/sys/class/net"
# Names that a message shows.
_MOST = 8


class Interrupt:
    """One that ``queues`` raise; a few drivers let several share one.

    Its number may be another after a boot, its name is not.
    """

    def __init__(self, host: Host, line: "Line", queues: Sequence[int] = ()) -> None:
        self.name = line.name
        self.number = line.number
        self._line = line
        self.queues = queues
        self.file = f"/proc/irq/{line.number}/smp_affinity_list"
        self.allowed = cpus_in(host, self.file)
        self._effective = cpus_in(host, f"/proc/irq/{line.number}/effective_affinity_list")

    @property
    def queue(self) -> int:
        """The first of its queues."""
        return self.queues[0]

    @property
    def raised(self) -> int:
        """How many times, as it was read."""
        return self._line.raised

    @property
    def served_by(self) -> Set[int]:
        """The CPUs that serve it now."""
        return self._effective or self.allowed

    @property
    def pending(self) -> bool:
        """Whether it is still served where it may not be: it moves when it is next raised."""
        return not self._effective <= self.allowed

    @property
    def serving(self) -> Set[int]:
        """The CPUs that serve it, or will once it is raised."""
        return self.allowed if self.pending else self.served_by


class Interrupts(NamedTuple):
    """Those of an interface's queues, queue by queue, and what the names of all tell."""

    queues: List[Interrupt]
    names: Sorted

    @property
    def doubt(self) -> str:
        """Why nobody knows the interrupts of all queues; "" where they are known, or none is."""
        if not (self.names.unknown and self.names.missing):
            return ""
        lacking = ", ".join(map(str, sorted(self.names.missing)))
        return f"receive queue {lacking} has none, and {raised_by_what(self.names.unknown)}"


def queue_interrupts(host: Host, interface: str) -> List[Interrupt]:
    """Those of an interface's queues, queue by queue; Unsupported unless all are known."""
    found = interrupts_of(host, interface)
    if not found.queues:
        why = _why_none(host, interface)
        raise Unsupported(f"{interface} has no interrupts of its queues: {why}")
    if found.doubt:
        raise Unsupported(f"the interrupts of {interface} are known in part: {found.doubt}")
    return found.queues


def find_interrupts(host: Host, interface: str) -> List[Interrupt]:
    """The same as far as they are known: drivers ask for them as they bring an interface up."""
    return interrupts_of(host, interface).queues


def interrupts_of(host: Host, interface: str) -> Interrupts:
    """The interrupts of an interface's device that somebody asked for."""
    return host.once(f"interrupts of {interface}", lambda: _find(host, interface))


def all_interrupts(host: Host, interface: str) -> List[Interrupt]:
    """Those of an interface's device, whatever raises them."""
    return [Interrupt(host, line) for line in _lines_of(host, interface)]


def vectors_of(host: Host, interface: str) -> List[str]:
    """The numbers of all message-signalled interrupts of an interface's device."""
    device = f"{NET}/{interface}/device"
    # A device of virtio is part of one of PCI, which has them.
    virtio = os.path.basename(os.path.realpath(host.path(device))).startswith("virtio")
    return host.names(f"{device}/{'../' if virtio else ''}msi_irqs")


def raised_by_what(names: List[str]) -> str:
    """That names do not tell what raises their interrupts; with some of them."""
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    shown = ", ".join(sorted(names)[:_MOST])
    return f"no name tells what raises {shown}{more}"


def _find(host: Host, interface: str) -> Interrupts:
    lines = _lines_of(host, interface)
    queues = [name[:2] for name in host.names(f"{NET}/{interface}/queues")]
    siblings = set(host.names(f"{NET}/{interface}/device/net")) - {interface}
    names = [line.name for line in lines]
    found = sort_names(names, interface, siblings, queues.count("rx"), queues.count("tx"))
    own = [
        Interrupt(host, line, found.queues[line.name])
        for line in lines
        if line.name in found.queues
    ]
    return Interrupts(sorted(own, key=lambda each: (each.queue, each.name)), found)


def _lines_of(host: Host, interface: str) -> "List[Line]":
    numbers = set(vectors_of(host, interface))
    if numbers:
        return [line for line in read_lines(host) if line.number in numbers]
    # A line that others share is not ours to move.
    return [line for line in _named_after(host, interface) if not line.shared]


def _named_after(host: Host, interface: str) -> "List[Line]":
    """Without msi_irqs: a legacy line, or on Xen, which calls those of vif-0 vif0-q0-rx."""
    device = f"{NET}/{interface}/device"
    if not host.exists(device):
        return []
    own = os.path.basename(os.path.realpath(host.path(device)))
    names = (interface, own, own.replace("-", ""))
    lines = read_lines(host)
    return [line for line in lines if any(is_named_after(name, line.name) for name in names)]


def _why_none(host: Host, interface: str) -> str:
    device = f"{NET}/{interface}/device"
    if not host.exists(device):
        return "it is virtual, without a device"
    if not int(host.text(f"{NET}/{interface}/flags", "0x1"), 16) & 1:
        return "it is down, and its driver asks for them as it is brought up"
    unknown, vectors = interrupts_of(host, interface).names.unknown, vectors_of(host, interface)
    if unknown:
        return raised_by_what(unknown)
    if vectors:
        return f"its driver asks for none of the {len(vectors)} that it has (msi_irqs)"
    for line in _named_after(host, interface):
        return f"it has no msi_irqs, and others share its line {line.number} ({line.name})"
    bus = os.path.basename(os.path.realpath(host.path(f"{device}/subsystem")))
    return f"it has no msi_irqs, and none is named after it, as with devices on the bus {bus}"


class Line(NamedTuple):
    """What /proc/interrupts tells of one of them."""

    number: str
    name: str
    text: str

    @property
    def shared(self) -> bool:
        """Whether several drivers asked for it, as for a line of a legacy card (INTx)."""
        return ", " in self.name

    @property
    def raised(self) -> int:
        """How many times since the boot, on all CPUs."""
        # There may be thousands of lines, each with a count for every CPU.
        return sum(map(int, itertools.takewhile(str.isdigit, self.text.split())))


def read_lines(host: Host) -> List[Line]:
    """All that have a number, and somebody who asked for them."""
    return host.once("/proc/interrupts", lambda: list(_lines(host.text("/proc/interrupts"))))


def _lines(text: str) -> Iterator[Line]:
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        # What nobody asked for ends in the blanks that the kernel fills its kind up with.
        if number.strip().isdigit() and rest.strip() and not rest.endswith(" "):
            # A name may have blanks, but not two of them in a row as in front of it.
            yield Line(number.strip(), rest.rpartition("  ")[2].strip(), rest)
