# SPDX-License-Identifier: Apache-2.0
"""Which CPUs send through which queue (XPS)."""

from typing import Dict, List, Sequence, Set

from edgetune.agent.interrupts import interrupts_of
from edgetune.agent.kinds.nic_queue_cpus import NicSteering
from edgetune.agent.kinds.queue_cpus import OfQueues
from edgetune.agent.protocol import Unsupported
from edgetune.agent.topology import Topology, cpus_that_serve
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic_xps import KIND, WORD
from edgetune.agent.vocabulary.values import Target


class NicXps(NicSteering):
    """Which CPUs send through which transmit queue.

    A list of CPUs for all of them, or ``per_queue``: each is for the CPUs that serve its
    interrupt, and the CPUs that serve none are shared out evenly.
    """

    kind = KIND
    word = WORD
    file = "xps_cpus"
    side = "transmit"

    def derived(self, target: Target, queues: List[str], siblings: Sequence[Setting]) -> OfQueues:
        interface = target["interface"]
        if not interrupts_of(self.host, interface).names.numbered:
            raise Unsupported(f"nobody knows which queue of {interface} raises which interrupt")
        serving = cpus_that_serve(self.host, interface, siblings)
        ordered = sorted(queues, key=queue_number)
        online = Topology(self.host).online
        left = sorted(online.difference(*serving.values()))
        cpus: Dict[str, Set[int]] = {}
        for place, queue in enumerate(ordered):
            share = left[place :: len(ordered)]
            cpus[queue] = (serving.get(queue_number(queue), set()) & online) | set(share)
        return {queue: cpus[queue] for queue in queues}


def queue_number(queue: str) -> int:
    """3 for ``tx-3``."""
    return int(queue.split("-")[1])
