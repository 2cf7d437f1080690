# SPDX-License-Identifier: Apache-2.0
"""What the kinds share that give CPUs to the queues of an interface."""

from typing import Dict, List, Sequence

from edgetune.agent.kinds import texts
from edgetune.agent.kinds.nic import NicHandler
from edgetune.agent.kinds.queue_cpus import OfQueues, QueueCpus
from edgetune.agent.protocol import Unsupported
from edgetune.agent.topology import Topology, all_online
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.values import Target, Value, format_mask, parse_mask


class NicQueueCpus(QueueCpus, NicHandler):
    """CPUs for each queue of an interface that is up."""

    def ready(self, target: Target) -> bool:
        """Not before the interface is up: drivers then ask for interrupts, and choose masks."""
        return self.is_up(target)


class NicSteering(NicQueueCpus):
    """CPUs that packets of each queue of one side are steered to, or from: a mask in sysfs."""

    file = ""
    side = ""
    word = ""

    def derived(self, target: Target, queues: List[str], siblings: Sequence[Setting]) -> OfQueues:
        """What its word stands for; Unsupported when that is not known."""
        raise NotImplementedError

    def now(self, target: Target) -> OfQueues:
        masks = self._masks(target).items()
        return {file.split("/")[0]: parse_mask(text) for file, text in masks}

    def wanted(self, target: Target, value: str, siblings: Sequence[Setting] = ()) -> OfQueues:
        queues = list(self.now(target))
        if value == self.word:
            return self.derived(target, queues, siblings)
        return dict.fromkeys(queues, all_online(Topology(self.host), value))

    def snapshot(self, target: Target) -> Dict[str, str]:
        return self._masks(target)

    def apply(self, target: Target, value: Value) -> None:
        """Give each queue its mask."""
        for queue, cpus in self.wanted(target, str(value)).items():
            file = f"{self._directory(target)}/queues/{queue}/{self.file}"
            self.host.write_attribute(file, f"{format_mask(cpus)}\n")

    def restore(self, target: Target, snapshot: object) -> None:
        self.restore_steering(target, texts(snapshot))

    def _masks(self, target: Target) -> Dict[str, str]:
        masks = self.read_steering(target, (self.file,))
        if not masks:
            raise Unsupported(f"{target['interface']} has no {self.side} queues with {self.file}")
        return masks
