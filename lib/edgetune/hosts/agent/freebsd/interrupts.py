# SPDX-License-Identifier: Apache-2.0
"""The interrupts of the queues of network cards, by vmstat(8)."""

import re
from typing import List, NamedTuple

from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.protocol import Failed

# Drivers of iflib(9), and vtnet: their interrupts have the names of interface and queue.
_OF_QUEUE = re.compile(r"irq([0-9]+): (\S+?):([rt])xq?([0-9]+)\s")


class Queue(NamedTuple):
    """An interrupt of a queue: ``side`` is ``rx`` or ``tx``."""

    irq: int
    side: str
    number: int


def queues(host: Host, interface: str) -> List[Queue]:
    """Those of an interface, in their order; none where its driver names them otherwise."""
    try:
        lines = host.run("vmstat", "-ai").splitlines()
    except Failed:
        return []
    found = [_OF_QUEUE.match(line + " ") for line in lines]
    own = [each for each in found if each and each.group(2) == interface]
    told = [Queue(int(each.group(1)), f"{each.group(3)}x", int(each.group(4))) for each in own]
    return sorted(told, key=lambda queue: (queue.side, queue.number))
