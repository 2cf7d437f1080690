# SPDX-License-Identifier: Apache-2.0
"""Which CPUs serve the interrupts of an interface's queues."""

from typing import Dict, List, Sequence, Set

from edgetune.agent.freebsd.readings import (
    Queue,
    channels_parameter,
    cores_first,
    cpus_of,
    domain_of,
    domains,
    number,
    queues,
)
from edgetune.agent.kinds import texts
from edgetune.agent.kinds.queue_cpus import OfQueues, QueueCpus
from edgetune.agent.protocol import Unsupported
from edgetune.agent.topology import deal
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic_irq_affinity import KIND
from edgetune.agent.vocabulary.values import Target, Value, format_cpus, parse_cpus


class NicIrqAffinity(QueueCpus):
    """Which CPU serves the interrupts of which queue, as on Linux; domains are its nodes."""

    kind = KIND
    each = "each "

    def present(self, target: Target) -> bool:
        """Some drivers ask for interrupts as they bring an interface up."""
        return bool(queues(self.host, target["interface"]))

    def ready(self, target: Target) -> bool:
        return self.present(target)

    def snapshot(self, target: Target) -> Dict[str, str]:
        return {name: format_cpus(cpus) for name, cpus in self.now(target).items()}

    def apply(self, target: Target, value: Value) -> None:
        self._serve(target, self.wanted(target, str(value)))

    def restore(self, target: Target, snapshot: object) -> None:
        was = {name: parse_cpus(cpus) for name, cpus in texts(snapshot).items()}
        self._serve(target, was)

    def _serve(self, target: Target, wanted: OfQueues) -> None:
        for queue in self._queues(target):
            if queue.name in wanted and cpus_of(self.host, queue) != wanted[queue.name]:
                cpus = format_cpus(wanted[queue.name])
                self.host.run("cpuset", "-l", cpus, "-x", str(queue.irq))

    def now(self, target: Target) -> OfQueues:
        return {queue.name: cpus_of(self.host, queue) for queue in self._queues(target)}

    def _queues(self, target: Target) -> List[Queue]:
        found = queues(self.host, target["interface"])
        teller = channels_parameter(target["interface"])
        if not found and teller:
            raise Unsupported(
                f"{target['interface']} does not tell the interrupts of all its channels: have a "
                f"tuning before this one set {teller} to 1 (sysctl)"
            )
        if not found:
            raise Unsupported(
                f"vmstat -ai names no interrupts of queues of {target['interface']}: it is down, "
                "or its driver has other names for them"
            )
        return found

    def wanted(self, target: Target, value: str, siblings: Sequence[Setting] = ()) -> OfQueues:
        found = self._queues(target)
        numbers = sorted({queue.number for queue in found})
        cpus = dict(zip(numbers, self._cpus(target, value, len(numbers))))
        return {queue.name: {cpus[queue.number]} for queue in found}

    def _cpus(self, target: Target, policy: str, count: int) -> List[int]:
        """A CPU for each of so many queues."""
        known = domains(self.host)
        if not known:
            raise Unsupported("cpuset -g -d does not tell the CPUs of every domain")
        if policy in ("spread", "interleave"):
            chosen = [known[domain] for domain in sorted(known)]
        else:
            chosen = [self._local(target, known) if policy == "local" else parse_cpus(policy)]
        missing = set().union(*chosen) - set(range(number(self.host, "hw.ncpu") or 1))
        if missing:
            raise Unsupported(f"there is no CPU {format_cpus(missing)}")
        return deal(policy, count, [cores_first(self.host, cpus) for cpus in chosen])

    def _local(self, target: Target, known: Dict[int, Set[int]]) -> Set[int]:
        if len(known) == 1:
            return next(iter(known.values()))
        domain = domain_of(self.host, target["interface"])
        if domain is None or domain not in known:
            raise Unsupported(f"nobody knows the domain of {target['interface']}: %domain has none")
        return known[domain]
