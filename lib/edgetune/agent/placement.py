# SPDX-License-Identifier: Apache-2.0
"""Which CPU serves which queue."""

import itertools
from typing import Dict, List, Sequence, Set

from edgetune.agent.host import Host
from edgetune.agent.interrupts import queue_interrupts
from edgetune.agent.protocol import Unsupported
from edgetune.agent.topology import Topology, node_of
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic import IRQ_AFFINITY
from edgetune.agent.vocabulary.values import format_cpus, parse_cpus


def cpus_of_queues(host: Host, interface: str, policy: str, queues: int) -> List[int]:
    """A CPU for each of so many queues; ``policy`` may be a list of CPUs as well.

    ``local`` takes those of the card's node in turn; ``spread`` gives each node a block of
    neighbouring queues, ``interleave`` deals the queues out to the nodes one by one. Unsupported
    where a CPU is not online, or nobody knows what is local.
    """
    topology = Topology(host)
    if policy in ("spread", "interleave"):
        nodes = [cores_first(topology, cpus) for _, cpus in sorted(topology.nodes.items())]
        return deal(turns(policy, queues, len(nodes)), nodes)
    chosen = local_cpus(host, interface) if policy == "local" else all_online(topology, policy)
    return deal([0] * queues, [cores_first(topology, chosen)])


def turns(policy: str, queues: int, nodes: int) -> List[int]:
    """Whose turn it is for each of so many queues: ``spread`` or ``interleave``."""
    if policy == "spread":
        return [queue * nodes // queues for queue in range(queues)]
    return [queue % nodes for queue in range(queues)]


def deal(turns: Sequence[int], nodes: Sequence[Sequence[int]]) -> List[int]:
    """The next CPU of each node whose turn it is; each node takes its own round and round."""
    rounds = [itertools.cycle(cpus) for cpus in nodes]
    return [next(rounds[turn]) for turn in turns]


def cores_first(topology: Topology, cpus: Set[int]) -> List[int]:
    """One CPU of each core first, then their hyper-threads."""

    def thread(cpu: int) -> int:
        return sorted(topology.siblings(cpu) & cpus).index(cpu)

    return sorted(cpus, key=lambda cpu: (thread(cpu), cpu))


def local_cpus(host: Host, interface: str) -> Set[int]:
    """The online CPUs of an interface's node; Unsupported when it has none, or is unknown."""
    nodes = Topology(host).nodes
    if len(nodes) == 1:
        return next(iter(nodes.values()))
    node = node_of(host, interface)
    if node is None:
        raise Unsupported(f"nobody knows the NUMA node of {interface}: numa_node tells none")
    if node not in nodes:
        raise Unsupported(f"node {node}, that of {interface}, has no CPU online")
    return nodes[node]


def all_online(topology: Topology, text: str) -> Set[int]:
    """The CPUs of a list; Unsupported when one of them is not online."""
    cpus = parse_cpus(text)
    if cpus - topology.online:
        raise Unsupported(f"CPU {format_cpus(cpus - topology.online)} is not online")
    return cpus


def placed(host: Host, interface: str, policy: str) -> Dict[str, Set[int]]:
    """The CPU that a policy gives each interrupt of an interface's queues, by its name."""
    found = queue_interrupts(host, interface)
    queues = sorted({own.queue for own in found})
    cpus = dict(zip(queues, cpus_of_queues(host, interface, policy, len(queues))))
    return {own.name: {cpus[own.queue]} for own in found}


def cpus_that_serve(host: Host, interface: str, siblings: Sequence[Setting]) -> Dict[int, Set[int]]:
    """The CPUs that serve each queue, by its number, once the siblings are in force.

    Unsupported where that may be any CPU: what is derived from it would not last.
    """
    planned, online = _planned(host, interface, siblings), Topology(host).online
    found: Dict[int, Set[int]] = {}
    for own in queue_interrupts(host, interface):
        if own.name not in planned and own.allowed >= online and len(online) > 1:
            raise Unsupported(
                f"any CPU may serve {own.name}: nic.irq_affinity of {interface} has to come first"
            )
        for queue in own.queues:
            found.setdefault(queue, set()).update(planned.get(own.name, own.serving))
    return found


def _planned(host: Host, interface: str, siblings: Sequence[Setting]) -> Dict[str, Set[int]]:
    for setting in siblings:
        if setting.kind == IRQ_AFFINITY.name and setting.target["interface"] == interface:
            return placed(host, interface, str(setting.value))
    return {}
