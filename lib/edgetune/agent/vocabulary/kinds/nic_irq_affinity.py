# SPDX-License-Identifier: Apache-2.0
"""Which CPUs serve the interrupts of an interface's queues."""

from edgetune.agent.vocabulary.grammar import Text
from edgetune.agent.vocabulary.kind import INTERFACE, Kind
from edgetune.agent.vocabulary.values import CPUS, cpus_or

POLICIES = ("local", "spread", "interleave")


KIND = Kind(
    name="nic.irq_affinity",
    target={"interface": INTERFACE},
    value=Text("|".join([*POLICIES, CPUS])),
    tidy=cpus_or(*POLICIES),
    systems=("linux", "freebsd"),
    disruption="live",
    order=80,
    summary="Which CPU serves the interrupts of which queue: one each, cores before hyper-threads.",
    takes="`local`: CPUs of the card's NUMA node in turn. `spread`: each node gets a block of "
    "neighbouring queues. `interleave`: the queues are dealt out to the nodes one by one. A list "
    "of CPUs is taken in turn. On Linux the message-signalled interrupts of the card (`msi_irqs`) "
    "are looked at, and their names tell which of them queues raise. A card is refused where a "
    "receive queue has none and a name is unknown; `diagnose` shows the unknown ones. On FreeBSD "
    "for cards whose driver uses iflib(9), and for vtnet, cxgbe and mlx5en.",
    example={"interface": "*", "value": "local"},
)
