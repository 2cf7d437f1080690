# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a host: one small function for each finding."""

from typing import Callable, Iterator, Tuple

from edgetune.agent.findings.conflicts import (
    bpftune,
    drift,
    irqbalance,
    sysctl_files,
    sysctl_not_in_force,
    tuned,
)
from edgetune.agent.findings.memory import fragmentation, numa_miss, shmem_on_one_node, swapping
from edgetune.agent.findings.placement import (
    accept_queue,
    initial_cwnd,
    irqs_unknown,
    web_on_irq_cpus,
)
from edgetune.agent.findings.receive import (
    backlog_drops,
    fdir_miss,
    interrupt_rate,
    net_rx_skew,
    ring_overflow,
    rss_reach,
    time_squeeze,
)
from edgetune.agent.findings.snapshot import Snapshot
from edgetune.agent.protocol import Json

Finder = Callable[[Snapshot], Iterator[Json]]

FINDERS: Tuple[Finder, ...] = (
    ring_overflow,
    rss_reach,
    fdir_miss,
    net_rx_skew,
    time_squeeze,
    backlog_drops,
    interrupt_rate,
    irqs_unknown,
    web_on_irq_cpus,
    accept_queue,
    fragmentation,
    swapping,
    shmem_on_one_node,
    numa_miss,
    initial_cwnd,
    irqbalance,
    tuned,
    bpftune,
    sysctl_files,
    sysctl_not_in_force,
    drift,
)
"""Each answers what it found on a host: nothing, or a finding for each place."""
