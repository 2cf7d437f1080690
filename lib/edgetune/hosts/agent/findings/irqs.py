# SPDX-License-Identifier: Apache-2.0
"""The interrupts of network cards, and the CPUs that serve them."""

import re
from typing import List, Set

from edgetune.hosts.agent.findings.snapshot import Snapshot
from edgetune.hosts.agent.topology import cpus_in

# As drivers call the vectors of queues: those of links, mailboxes and events are none.
QUEUE = re.compile(r"Tx-?Rx|[rt]x-?[0-9]|comp[0-9]|(in|out)put\.[0-9]", re.IGNORECASE)


def queue_irqs(snap: Snapshot, nic: str) -> List[str]:
    """The numbers of the interrupts of an interface's queues."""
    device = f"/sys/class/net/{nic}/device"
    # That of virtio is the child of what has the vectors.
    vectors = snap.host.names(f"{device}/msi_irqs") or snap.host.names(f"{device}/../msi_irqs")
    names = {irq: snap.irq_names[irq] for irq in vectors if irq in snap.irq_names}
    return [irq for irq, name in names.items() if QUEUE.search(name)]


def allowed_on(snap: Snapshot, irq: str) -> Set[int]:
    """The CPUs that an interrupt may go to."""
    return cpus_in(snap.host, f"/proc/irq/{irq}/smp_affinity_list")


def served_by(snap: Snapshot, irq: str) -> Set[int]:
    """The CPUs that an interrupt really goes to."""
    file = f"/proc/irq/{irq}/effective_affinity_list"
    return cpus_in(snap.host, file) or allowed_on(snap, irq)
