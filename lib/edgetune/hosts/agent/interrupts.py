# SPDX-License-Identifier: Apache-2.0
"""The interrupts of an interface's queues, and the CPUs that serve them."""

import itertools
import os
import re
from typing import Iterator, List, NamedTuple, Set

from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.protocol import Unsupported
from edgetune.hosts.agent.topology import cpus_in

# Such as eth0-TxRx-0, i40e-eth0-TxRx-0, ena's eth0-Tx-Rx-0, mlx5_comp0@pci:0000:03:00.0 and
# virtio0-input.0; not those of links, mailboxes and events. That of i40e's Flow Director looks
# alike, and has no queue of the kernel.
QUEUE = re.compile(
    r"(?!.*fdir).*[-_](?:tx-?rx|rx-?tx|rx|tx|comp|input|output|fp)[-.]?([0-9]+)(?:@.*)?", re.I
)


class Interrupt:
    """One that a queue raises.

    Its number may be another after a boot, its name is not.
    """

    def __init__(self, host: Host, line: "Line", queue: int) -> None:
        self.name = line.name
        self._line = line
        self.queue = queue
        self.file = f"/proc/irq/{line.number}/smp_affinity_list"
        self.allowed = cpus_in(host, self.file)
        self._effective = cpus_in(host, f"/proc/irq/{line.number}/effective_affinity_list")

    @property
    def raised(self) -> int:
        """How many times, as it was read."""
        return self._line.raised

    @property
    def pending(self) -> bool:
        """Whether it is still served where it may not be: it moves when it is next raised."""
        return not self._effective <= self.allowed

    @property
    def serving(self) -> Set[int]:
        """The CPUs that serve it, or will once it is raised."""
        return self.allowed if self.pending else self._effective or self.allowed


def queue_interrupts(host: Host, interface: str) -> List[Interrupt]:
    """Those of an interface's queues, queue by queue; Unsupported without any."""
    found = find_interrupts(host, interface)
    if not found:
        raise Unsupported(f"{interface} has no interrupts of its queues: it is down or virtual")
    return found


def find_interrupts(host: Host, interface: str) -> List[Interrupt]:
    """The same, which may be none: drivers ask for them as they bring an interface up."""
    return host.once(f"interrupts of {interface}", lambda: _find(host, interface))


def _find(host: Host, interface: str) -> List[Interrupt]:
    device = f"/sys/class/net/{interface}/device"
    numbers = set(host.names(f"{device}/msi_irqs"))
    virtio = os.path.basename(os.path.realpath(host.path(device)))
    queues = [name[:2] for name in host.names(f"/sys/class/net/{interface}/queues")]
    most = max(queues.count(side) for side in ("rx", "tx"))
    found = []
    for line in read_lines(host):
        queue = QUEUE.fullmatch(line.name)
        ours = line.number in numbers or line.name.startswith(f"{virtio}-")
        # Some drivers have vectors to spare, for queues that could be.
        if ours and queue and int(queue.group(1)) < most:
            found.append(Interrupt(host, line, int(queue.group(1))))
    return sorted(found, key=lambda own: (own.queue, own.name))


class Line(NamedTuple):
    """What /proc/interrupts tells of one of them."""

    number: str
    name: str
    text: str

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
        if number.strip().isdigit() and rest.strip():
            yield Line(number.strip(), rest.rsplit(None, 1)[-1], rest)
