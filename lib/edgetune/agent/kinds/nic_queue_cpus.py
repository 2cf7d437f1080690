# SPDX-License-Identifier: Apache-2.0
"""What the kinds share that give CPUs to the queues of an interface."""

import contextlib
from typing import Dict, List, Optional, Sequence, Set

from edgetune.agent.kinds.base import texts
from edgetune.agent.kinds.nic import NicHandler
from edgetune.agent.placement import all_online
from edgetune.agent.protocol import Unsupported
from edgetune.agent.topology import Topology
from edgetune.agent.vocabulary.setting import Setting
from edgetune.agent.vocabulary.values import Target, Value, format_cpus, format_mask, parse_mask

OfQueues = Dict[str, Set[int]]
"""CPUs by the name of a queue, or of its interrupt."""


class NicQueueCpus(NicHandler):
    """CPUs for each queue: by a list of CPUs, or by a word for what each host finds out itself."""

    def ready(self, target: Target) -> bool:
        """Not before the interface is up: drivers then ask for interrupts, and choose masks."""
        return self.is_up(target)

    def now(self, target: Target) -> OfQueues:
        """The CPUs of each queue; Unsupported when the interface has none that could have any."""
        raise NotImplementedError

    def wanted(self, target: Target, value: str, siblings: Sequence[Setting] = ()) -> OfQueues:
        """The CPUs that a value stands for on this host, once its siblings are in force.

        Unsupported when that cannot be told.
        """
        raise NotImplementedError

    def told(self, found: OfQueues) -> str:
        """The CPUs; where queues differ, each with its own (``rx-0: 0, rx-1: ``)."""
        lists = {queue: format_cpus(cpus) for queue, cpus in found.items()}
        if len(set(lists.values())) == 1:
            return next(iter(lists.values()))
        return ", ".join(f"{queue}: {cpus}" for queue, cpus in lists.items())

    def probe(self, setting: Setting) -> None:
        self.wanted(setting.target, str(setting.value), setting.siblings)

    def runtime(self, target: Target) -> Value:
        return self.told(self.now(target))

    def is_back(self, target: Target, now: Optional[Value], was: Optional[Value]) -> bool:
        """What is back may be what the word stands for by now."""
        return now is not None and self.runtime(target) == was

    def in_terms(self, setting: Setting, found: Value) -> Value:
        """The value itself where the queues have the CPUs that it stands for."""
        with contextlib.suppress(Unsupported):
            wanted = self.wanted(setting.target, str(setting.value), setting.siblings)
            if found == self.told(wanted):
                return setting.value
        return found


class NicSteering(NicQueueCpus):
    """CPUs that packets of each queue of one side are steered to, or from: a mask in sysfs."""

    file = ""
    side = ""
    word = ""

    def derived(self, target: Target, queues: List[str], siblings: Sequence[Setting]) -> OfQueues:
        """What its word stands for; Unsupported when that cannot be told."""
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
