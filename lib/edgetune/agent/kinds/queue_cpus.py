# SPDX-License-Identifier: Apache-2.0
"""CPUs for the queues of an interface, on every system."""

import contextlib
from typing import Dict, Optional, Sequence, Set

from edgetune.agent.kinds import HookKept
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.values import Target, Value, format_cpus

OfQueues = Dict[str, Set[int]]
"""CPUs by the name of a queue, or of its interrupt."""


class QueueCpus(HookKept):
    """CPUs for each queue: by a list of CPUs, or by a word for what each host finds out itself."""

    # Stands before CPUs that all queues have, where they are not to be taken for a list of CPUs to
    # be taken in turn.
    each = ""

    def now(self, target: Target) -> OfQueues:
        """The CPUs of each queue; Unsupported when the interface has none that could have any."""
        raise NotImplementedError

    def wanted(self, target: Target, value: str, siblings: Sequence[Setting] = ()) -> OfQueues:
        """The CPUs that a value stands for on this host, once its siblings are in force.

        Unsupported when that is not known.
        """
        raise NotImplementedError

    def text_of(self, found: OfQueues) -> str:
        """The CPUs; where queues differ, each with its own (``rx-0: 0, rx-1: ``)."""
        lists = {queue: format_cpus(cpus) for queue, cpus in found.items()}
        if len(set(lists.values())) == 1:
            return self.each + next(iter(lists.values()))
        return ", ".join(f"{queue}: {cpus}" for queue, cpus in lists.items())

    def probe(self, setting: Setting) -> None:
        self.wanted(setting.target, str(setting.value), setting.siblings)

    def runtime(self, target: Target) -> Value:
        return self.text_of(self.now(target))

    def is_back(self, target: Target, now: Optional[Value], was: Optional[Value]) -> bool:
        """What is back may be what the word stands for by now."""
        return now is not None and self.runtime(target) == was

    def in_terms(self, setting: Setting, found: Value) -> Value:
        """The value itself where the queues have the CPUs that it stands for."""
        with contextlib.suppress(Unsupported):
            wanted = self.wanted(setting.target, str(setting.value), setting.siblings)
            if found == self.text_of(wanted):
                return setting.value
        return found
