# SPDX-License-Identifier: Apache-2.0
"""Which CPUs receive packets in software (RPS)."""

from typing import List, Sequence

from edgetune.agent.kinds.nic_queue_cpus import NicSteering
from edgetune.agent.kinds.queue_cpus import OfQueues
from edgetune.agent.protocol import Unsupported, or_none
from edgetune.agent.topology import Topology, cpus_that_serve, local_cpus
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic_rps import KIND, WORD
from edgetune.agent.vocabulary.values import Target


class NicRps(NicSteering):
    """Which CPUs receive packets in software: the same for all receive queues.

    A list of CPUs, or ``others``: those of the card's node (all, where nobody knows it) that do
    not serve its interrupts.
    """

    kind = KIND
    word = WORD
    file = "rps_cpus"
    side = "receive"

    def derived(self, target: Target, queues: List[str], siblings: Sequence[Setting]) -> OfQueues:
        interface = target["interface"]
        # What has no card behind it has no interrupts either.
        card = self.host.exists(f"{self._directory(target)}/device")
        serving = cpus_that_serve(self.host, interface, siblings) if card else {}
        near = or_none(local_cpus, self.host, interface)
        online = Topology(self.host).online
        others = (online if near is None else near).difference(*serving.values())
        if not others:
            raise Unsupported(f"each CPU near to {interface} serves its interrupts: none is left")
        return dict.fromkeys(queues, others)
