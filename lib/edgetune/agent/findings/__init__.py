# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a host: one small function for each finding."""

from typing import Callable, Iterator, Tuple

from edgetune.agent.findings import conflicts, memory, placement, receive
from edgetune.agent.findings.snapshot import Snapshot
from edgetune.agent.protocol import Json

Finder = Callable[[Snapshot], Iterator[Json]]

FINDERS: Tuple[Finder, ...] = (
    receive.ring_overflow,
    receive.rss_reach,
    receive.fdir_miss,
    receive.net_rx_skew,
    receive.time_squeeze,
    receive.backlog_drops,
    receive.interrupt_rate,
    placement.irqs_unknown,
    placement.web_on_irq_cpus,
    placement.accept_queue,
    memory.fragmentation,
    memory.swapping,
    memory.shmem_on_one_node,
    memory.numa_miss,
    placement.initial_cwnd,
    conflicts.irqbalance,
    conflicts.tuned,
    conflicts.bpftune,
    conflicts.sysctl_files,
    conflicts.sysctl_not_in_force,
    conflicts.drift,
)
"""Each answers what it found on a host: nothing, or a finding for each place."""
