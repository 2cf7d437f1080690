# SPDX-License-Identifier: Apache-2.0
"""The CPUs, memory and interrupts of a host, in the files that a kernel shows them in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgetune.agent.vocabulary.values import format_cpus
from tests.support.agent_root import AgentRoot

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


Names = Callable[[str, int], list[str]]
"""The names of an interface's interrupts: those of its queues first, then the others."""


def each(*forms: str, others: Sequence[str]) -> Names:
    """Some for each queue; ``IF`` stands for the interface, ``N`` for the number of the queue."""

    def names(interface: str, queues: int) -> list[str]:
        own = [form.replace("N", str(queue)) for queue in range(queues) for form in forms]
        return [name.replace("IF", interface) for name in [*own, *others]]

    return names


PCI = "0000:03:00.0"
NAMES: dict[str, Names] = {
    "ixgbe": each("IF-TxRx-N", others=["IF"]),
    "igb": each("IF-rx-N", "IF-tx-N", others=["IF"]),
    "i40e": each("i40e-IF-TxRx-N", others=[f"i40e-{PCI}:misc", f"i40e-{PCI}:fdir-TxRx-0"]),
    "ice": each("ice-IF-TxRx-N", others=[f"ice-{PCI}:misc"]),
    "mlx5_core": each(
        f"mlx5_compN@pci:{PCI}",
        others=[f"mlx5_async0@pci:{PCI}", *(f"mlx5_comp{spare}@pci:{PCI}" for spare in (62, 63))],
    ),
    "bnxt_en": each("IF-TxRx-N", others=[]),
    "ena": each("IF-Tx-Rx-N", others=[f"ena-mgmnt@pci:{PCI}"]),
    "virtio_net": each("virtio0-input.N", "virtio0-output.N", others=["virtio0-config"]),
}
"""By driver, as /proc/interrupts shows them."""


@dataclass
class Vectors:
    """The interrupts of an interface, with the files of the kernel that show and steer them."""

    host: AgentRoot
    machine: Machine
    driver: str = "ixgbe"
    queues: int = 4
    numa_node: int = 0
    interface: str = "eth0"
    first: int = 64
    numbers: dict[str, int] = field(default_factory=dict)

    @property
    def of_queues(self) -> list[str]:
        """The names of those that queues raise."""
        per_queue = 2 if self.driver in ("igb", "virtio_net") else 1
        return self.names[: per_queue * self.queues]

    @property
    def names(self) -> list[str]:
        return NAMES[self.driver](self.interface, self.queues)

    @property
    def device(self) -> str:
        return f"sys/class/net/{self.interface}/device"

    @property
    def part_of(self) -> str:
        """What has a node, and interrupts: of a device of virtio that of PCI it is part of."""
        return "sys/devices/pci0" if self.driver == "virtio_net" else self.device

    def install(self) -> Vectors:
        """Be there: after a boot, or after the driver asked for them anew."""
        host = self.host
        if self.driver == "virtio_net":
            self._stand_on_virtio()
        host.write(f"{self.part_of}/numa_node", f"{self.numa_node}\n")
        host.write(f"sys/class/net/{self.interface}/statistics/rx_packets", "7\n")
        shutil.rmtree(host.path / "sys/class/net" / self.interface / "queues", True)
        for queue in range(self.queues):
            for side, mask in (("rx", "rps_cpus"), ("tx", "xps_cpus")):
                directory = f"sys/class/net/{self.interface}/queues/{side}-{queue}"
                host.write(f"{directory}/{mask}", "0\n")
        self.request()
        return self

    def request(self) -> None:
        """Ask for them, under new numbers; they may go to every CPU then.

        An interface that is down (by its ``flags``, where it has any) gives them up.
        """
        for number in self.numbers.values():
            shutil.rmtree(self.host.path / f"proc/irq/{number}")
        shutil.rmtree(self.host.path / self.part_of / "msi_irqs", True)
        flags = f"sys/class/net/{self.interface}/flags"
        if self.host.exists(flags) and not int(self.host.read(flags), 16) & 1:
            self.host.write("proc/interrupts", "  CPU0\n")
            self.numbers = {}
            return
        last = self.first + len(self.numbers)
        self.numbers = {name: last + place for place, name in enumerate(self.names)}
        for name, number in self.numbers.items():
            self.host.write(f"{self.part_of}/msi_irqs/{number}", "msix\n")
            self.host.write(f"proc/irq/{number}/smp_affinity_list", f"0-{self.machine.count - 1}\n")
            self.count(name, 10)

    def count(self, name: str, raised: int) -> None:
        """Have it raised so many times, on CPU 0."""
        number, cpus = self.numbers[name], len(self.machine.online)
        counts = "".join(f"{count:>11}" for count in [raised] + [0] * (cpus - 1))
        line = f"{number:>4}:{counts}  IR-PCI-MSIX-{PCI}  {number - self.first}-edge      {name}"
        shown = self.host.path / "proc/interrupts"
        lines = shown.read_text().splitlines() if shown.exists() else [" CPU0 CPU1 ..."]
        mine = [other for other in lines if not other.startswith(f"{number:>4}:")]
        end = "NMI:          0          0   Non-maskable interrupts"
        kept = [other for other in mine if not other.startswith("NMI") and not self._stale(other)]
        self.host.write("proc/interrupts", "\n".join([*kept, line, end]) + "\n")

    def _stale(self, line: str) -> bool:
        name = line.split()[-1]
        return name in self.names and not line.startswith(f"{self.numbers[name]:>4}:")

    def allowed(self) -> dict[str, str]:
        """The CPUs that those of queues may go to, by name."""
        return {name: self.read(name).strip() for name in self.of_queues}

    def read(self, name: str) -> str:
        return self.host.read(f"proc/irq/{self.numbers[name]}/smp_affinity_list")

    def allow(self, name: str, cpus: str) -> None:
        """Let one go to some CPUs."""
        self.host.write(f"proc/irq/{self.numbers[name]}/smp_affinity_list", f"{cpus}\n")

    def serve(self, name: str, cpu: str) -> None:
        """Let the hardware send it to a CPU."""
        self.host.write(f"proc/irq/{self.numbers[name]}/effective_affinity_list", f"{cpu}\n")

    def _stand_on_virtio(self) -> None:
        device = self.host.path / self.device
        if not os.path.lexists(device):
            (self.host.path / "sys/devices/pci0/virtio0").mkdir(parents=True)
            device.symlink_to("../../../devices/pci0/virtio0")


def run_nginx(host: AgentRoot, **workers: str) -> None:
    """Let the service have processes: its main one, 77, and workers (``p78="0-3"``) below it."""
    main = host.path / "proc/77/task/77"
    if not main.exists():
        main.mkdir(parents=True)
        (main / "status").symlink_to("../../status")
    for name, cpus in workers.items():
        pid = name[1:]
        host.write(f"proc/{pid}/stat", f"{pid} (nginx: worker (x)) S 77 77 77 0 -1\n")
        for thread in (pid, f"{pid}0"):
            host.write(f"proc/{pid}/task/{thread}/status", f"Cpus_allowed_list:\t{cpus}\n")
