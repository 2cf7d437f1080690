# SPDX-License-Identifier: Apache-2.0
"""The CPUs and the memory of a host, and what lies near to them."""

import itertools
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set

from edgetune.agent.host import Host
from edgetune.agent.interrupts import queue_interrupts
from edgetune.agent.protocol import Json, Unsupported
from edgetune.agent.readings import cpus_in, meminfo, memory_in
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic_irq_affinity import KIND
from edgetune.agent.vocabulary.values import format_cpus, parse_cpus

CPUS = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"


class Topology:
    """The CPUs that are online, and those of each NUMA node that has any.

    A kernel that knows no nodes has them all on node 0.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.online = parse_cpus(host.text(f"{CPUS}/online", "0"))
        of_node = {
            node: cpus_in(host, f"{NODES}/node{node}/cpulist") for node in node_numbers(host)
        }
        known = {node: cpus & self.online for node, cpus in of_node.items() if cpus & self.online}
        self.nodes: Dict[int, Set[int]] = known or {0: self.online}

    def siblings(self, cpu: int) -> Set[int]:
        """The online hyper-threads of its core, itself among them."""
        file = f"{CPUS}/cpu{cpu}/topology/thread_siblings_list"
        found = self._host.once(file, lambda: cpus_in(self._host, file))
        return (found & self.online) | {cpu}


def node_numbers(host: Host) -> Iterator[int]:
    """The NUMA nodes, in their order."""
    names = [re.fullmatch(r"node([0-9]+)", name) for name in host.names(NODES)]
    yield from sorted(int(name.group(1)) for name in names if name)


def node_of(host: Host, interface: str) -> Optional[int]:
    """The NUMA node of an interface's card; None where the kernel does not know it (-1)."""
    text = device_attribute(host, interface, "numa_node")
    return int(text) if text.isdigit() else None


def device_attribute(host: Host, interface: str, file: str) -> str:
    """What an attribute of a card's device says, "" where it has none.

    A device of virtio has none: it is part of one of PCI, which has
    (Documentation/driver-api/virtio of Linux).
    """
    device = f"/sys/class/net/{interface}/device"
    # The kernel goes up from where the link leads.
    return host.text(f"{device}/{file}") or host.text(f"{device}/../{file}")


def cpu_facts(host: Host) -> Json:
    """What CPUs there are; ``vendor`` and ``model`` are None where the kernel does not tell."""
    topology = Topology(host)
    text = host.text("/proc/cpuinfo")
    return {
        "online": format_cpus(topology.online),
        "count": len(topology.online),
        "vendor": line_of(text, "vendor_id"),
        "model": line_of(text, "model name"),
        "nodes": {str(node): format_cpus(cpus) for node, cpus in topology.nodes.items()},
    }


def line_of(text: str, name: str) -> Optional[str]:
    """What /proc/cpuinfo tells under a name, of the first CPU; None where it does not."""
    found = re.search(rf"^{name}\s*: (.*)", text, re.MULTILINE)
    return found.group(1).strip() if found else None


class Memory(NamedTuple):
    """How much memory there is, in kB; ``nodes`` without those that have none."""

    total_kb: Optional[int]
    swap_kb: Optional[int]
    nodes: Dict[str, Optional[int]]
    smallest_node_kb: Optional[int]


def memory_of(host: Host) -> Memory:
    """The memory of a host."""
    kib = meminfo(host)
    total = kib.get("MemTotal")
    nodes: Dict[str, Optional[int]] = {}
    for node in node_numbers(host):
        in_node = memory_in(host.text(f"{NODES}/node{node}/meminfo")).get("MemTotal")
        if in_node:
            nodes[str(node)] = in_node
    nodes = nodes or {"0": total}
    smallest = min(nodes.values(), key=lambda kb: kb or 0)
    return Memory(total, kib.get("SwapTotal"), nodes, smallest)


def memory_nodes(host: Host) -> Set[int]:
    """The nodes that have memory."""
    return {int(node) for node in memory_of(host).nodes}


def named(host: Host, word: str, nodes: str) -> str:
    """``bind:0-1``, or the bare word without nodes; ``interleave`` alone is over all of them."""
    chosen = memory_nodes(host) if nodes == "all" else parse_cpus(nodes)
    if not chosen or (word == "interleave" and chosen >= memory_nodes(host)):
        return word
    return f"{word}:{format_cpus(chosen)}"


def refuse_nodes(host: Host, policy: str) -> None:
    """Unsupported when a policy names nodes that have no memory here."""
    have = memory_nodes(host)
    missing = parse_cpus(policy.partition(":")[2]) - have
    if missing:
        lacking, there = format_cpus(missing), format_cpus(have)
        raise Unsupported(f"the host has memory on NUMA nodes {there}, not on {lacking}")


def cpus_of_queues(host: Host, interface: str, policy: str, queues: int) -> List[int]:
    """A CPU for each of so many queues; ``policy`` may be a list of CPUs as well.

    ``local`` takes those of the card's node in turn; ``spread`` gives each node a block of
    neighbouring queues, ``interleave`` deals the queues out to the nodes one by one. Unsupported
    where a CPU is not online, or nobody knows what is local.
    """
    topology = Topology(host)
    if policy in ("spread", "interleave"):
        chosen = [cpus for _, cpus in sorted(topology.nodes.items())]
    else:
        local = policy == "local"
        chosen = [local_cpus(host, interface) if local else all_online(topology, policy)]
    return deal(policy, queues, [cores_first(topology, cpus) for cpus in chosen])


def deal(policy: str, queues: int, nodes: Sequence[Sequence[int]]) -> List[int]:
    """The next CPU of the node whose turn it is; each node takes its own round and round."""
    rounds = [itertools.cycle(cpus) for cpus in nodes]
    in_blocks, many = policy == "spread", len(nodes)
    turns = [queue * many // queues if in_blocks else queue % many for queue in range(queues)]
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
    queues = sorted({interrupt.queue for interrupt in found})
    cpus = dict(zip(queues, cpus_of_queues(host, interface, policy, len(queues))))
    return {interrupt.name: {cpus[interrupt.queue]} for interrupt in found}


def cpus_that_serve(host: Host, interface: str, siblings: Sequence[Setting]) -> Dict[int, Set[int]]:
    """The CPUs that serve each queue, by its number, once the siblings are in force.

    Unsupported where that may be any CPU: what is derived from it would not last.
    """
    planned, online = _planned(host, interface, siblings), Topology(host).online
    found: Dict[int, Set[int]] = {}
    for interrupt in queue_interrupts(host, interface):
        if interrupt.name not in planned and interrupt.allowed >= online and len(online) > 1:
            raise Unsupported(
                f"any CPU may serve {interrupt.name}: "
                f"nic.irq_affinity of {interface} has to come first"
            )
        for queue in interrupt.queues:
            found.setdefault(queue, set()).update(planned.get(interrupt.name, interrupt.serving))
    return found


def _planned(host: Host, interface: str, siblings: Sequence[Setting]) -> Dict[str, Set[int]]:
    for setting in siblings:
        if setting.kind == KIND.name and setting.target["interface"] == interface:
            return placed(host, interface, str(setting.value))
    return {}
