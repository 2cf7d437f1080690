# SPDX-License-Identifier: Apache-2.0
"""The CPUs, memory and interrupts of a host, in the files that a kernel shows them in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgetune.hosts.agent.values import format_cpus
from tests.agent_root import AgentRoot

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
CPUINFO = """\
processor\t: {cpu}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 63
model name\t: Intel(R) Xeon(R) CPU E5-2690 v3 @ 2.60GHz
physical id\t: {node}

"""


@dataclass(frozen=True)
class Machine:
    """Sockets, each a node, of so many cores with so many hyper-threads each.

    CPUs are numbered as Linux does on x86: the cores of all sockets first, then their second
    threads. Those in ``offline`` are.
    """

    sockets: int = 2
    cores: int = 4
    threads: int = 2
    offline: Sequence[int] = ()
    node_kb: int = 65536000

    @property
    def count(self) -> int:
        return self.sockets * self.cores * self.threads

    @property
    def online(self) -> set[int]:
        return set(range(self.count)) - set(self.offline)

    def node_of(self, cpu: int) -> int:
        return cpu // self.cores % self.sockets

    def core_of(self, cpu: int) -> int:
        """Of the whole machine."""
        return cpu % (self.sockets * self.cores)

    def node(self, number: int) -> set[int]:
        """Its CPUs that are online."""
        return {cpu for cpu in self.online if self.node_of(cpu) == number}

    def siblings(self, cpu: int) -> set[int]:
        return {other for other in self.online if self.core_of(other) == self.core_of(cpu)}

    def install(self, host: AgentRoot) -> None:
        """Have a host made of this."""
        online = sorted(self.online)
        host.write(f"{CPU}/online", f"{format_cpus(self.online)}\n")
        info = [CPUINFO.format(cpu=cpu, node=self.node_of(cpu)) for cpu in online]
        host.write("proc/cpuinfo", "".join(info))
        for cpu in online:
            siblings = f"{format_cpus(self.siblings(cpu))}\n"
            host.write(f"{CPU}/cpu{cpu}/topology/thread_siblings_list", siblings)
        for node in range(self.sockets):
            host.write(f"{NODE}/node{node}/cpulist", f"{format_cpus(self.node(node))}\n")
            meminfo = f"Node {node} MemTotal:       {self.node_kb} kB\n"
            host.write(f"{NODE}/node{node}/meminfo", meminfo)
