# SPDX-License-Identifier: Apache-2.0
"""A host on which everything is wrong that `diagnose` finds, and the same one in health.

Its files and the output of its programs are as Linux 6.1, ethtool 6.1 and iproute2 6.1 have them;
a `VirtualClock` takes the place of the agent's, and what is counted grows while that sleeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgetune.agent import findings
from edgetune.agent.dispatch import answer
from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed
from tests.support import FIXTURES
from tests.support.agent_root import AgentRoot
from tests.support.cases import table
from tests.support.virtual_clock import VirtualClock

CPUS = 8
NOW = 1_793_000_000.0
"""In October of 2026."""
NIC = "sys/class/net/eth0"
GROUP_SHOWN = "systemctl show -p ControlGroup -p MainPID nginx"


class AgentClock(VirtualClock):
    """With the name that the agent has for it."""

    def time(self) -> float:
        return self.wall()


class DiagnosedHost(AgentRoot):
    """A host whose agent is asked in this process; ``says`` is the output of its programs."""

    def __init__(self, path: Path, patch: Any) -> None:
        super().__init__(path)
        self.clock = AgentClock(NOW, look=0.0)
        self.says: dict[str, str] = {}
        patch.setattr(findings, "time", self.clock)
        patch.setattr(Host, "program", lambda host, name: self._program(name))
        patch.setattr(Host, "run", lambda host, *words: self._run_program(" ".join(words)))

    def _program(self, name: str) -> str | None:
        return name if any(command.split()[0] == name for command in self.says) else None

    def _run_program(self, command: str) -> str:
        if command not in self.says:
            raise Failed(f"{command}: netlink error: Operation not supported")
        return self.says[command]

    def send(self, document: bytes) -> dict[str, Any]:
        reply: dict[str, Any] = answer(str(self.path), document)
        return reply

    def diagnose(self, seconds: int = 5, **fields: Any) -> dict[str, Any]:
        """The answer; nothing on the disk of the host may change."""
        before = self.tree()
        result = self.ask("diagnose", seconds=seconds, **fields)
        if seconds == 0:
            assert self.tree() == before
        return result

    def found(self, seconds: int = 5, **fields: Any) -> dict[str, dict[str, Any]]:
        """The findings by name; each once."""
        findings = self.diagnose(seconds, **fields)["findings"]
        named = {row["finding"]: row for row in findings}
        assert len(named) == len(findings)
        for row in findings:
            assert row["measure"] in row["numbers"]
        return named

    def write_all(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            self.write(name, text)


def per_cpu(rows: Mapping[str, Sequence[int]], labels: Mapping[str, str] | None = None) -> str:
    """A table as in /proc/softirqs and /proc/interrupts."""
    head = "".join(f"{f'CPU{cpu}':>11}" for cpu in range(CPUS))
    lines = [
        f"{name:>4}:" + "".join(f"{n:>11}" for n in numbers) + f"  {(labels or {}).get(name, '')}"
        for name, numbers in rows.items()
    ]
    return "\n".join([f"     {head}", *lines, ""])


def softnet(rows: Sequence[tuple[int, int, int]], columns: int = 15) -> str:
    """/proc/net/softnet_stat of kernels with 11, 13 or 15 columns."""
    made = []
    for cpu, (processed, dropped, squeezed) in enumerate(rows):
        row = [processed, dropped, squeezed, *[0] * (columns - 3)]
        if columns > 12:
            row[12] = cpu
        made.append(" ".join(f"{number & 0xFFFFFFFF:08x}" for number in row))
    return "\n".join(made) + "\n"


def indirection(size: int, queues: int) -> str:
    """``ethtool -x``, with a table spread over so many queues."""
    rows = [
        f"{first:5}:  " + "".join(f"{(first + i) % queues:6}" for i in range(8))
        for first in range(0, size, 8)
    ]
    key = ":".join(["6d", "5a", "56", "da"] * 10)
    return (
        f"RX flow hash indirection table for eth0 with {queues} RX ring(s):\n"
        + "\n".join(rows)
        + f"\nRSS hash key:\n{key}\nRSS hash function:\n    toeplitz: on\n    xor: off\n"
    )


def channels(combined: int, most: int) -> str:
    """``ethtool -l``."""
    rows = "RX:\t\tn/a\nTX:\t\tn/a\nOther:\t\t1\nCombined:\t{}\n"
    head = "Channel parameters for eth0:\nPre-set maximums:\n"
    return head + rows.format(most) + "Current hardware settings:\n" + rows.format(combined)


def ring(rx: int, most: int) -> str:
    """``ethtool -g``."""
    rows = "RX:\t\t{0}\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t\t512\n"
    head = "Ring parameters for eth0:\nPre-set maximums:\n"
    return head + rows.format(most) + "Current hardware settings:\n" + rows.format(rx)


def nic_statistics(counters: Mapping[str, int]) -> str:
    """``ethtool -S``."""
    rows = "".join(f"     {name}: {number}\n" for name, number in counters.items())
    return f"NIC statistics:\n{rows}"


def stat(softirq: Sequence[int], idle: Sequence[int]) -> str:
    """/proc/stat: user nice system idle iowait irq softirq steal guest guest_nice."""
    rows = [f"cpu{cpu} 0 0 0 {idle[cpu]} 0 0 {softirq[cpu]} 0 0 0" for cpu in range(CPUS)]
    whole = f"cpu  0 0 0 {sum(idle)} 0 0 {sum(softirq)} 0 0 0"
    return "\n".join([whole, *rows, "intr 1 2 3", ""])


def overflows(number: int) -> str:
    """/proc/net/netstat."""
    return (
        f"TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 {number} {number}\n"
        "IpExt: InNoRoutes\nIpExt: 0\n"
    )


def node(shmem_gib: int, number: int) -> str:
    """/sys/devices/system/node/nodeN/meminfo of 128 GiB."""
    return (
        f"\nNode {number} MemTotal:       {128 << 20} kB\n"
        f"Node {number} MemFree:        {9 << 20} kB\n"
        f"Node {number} Active(anon):   100 kB\n"
        f"Node {number} Shmem:          {shmem_gib << 20} kB\n"
    )


def numastat(hit: int, miss: int, foreign: int) -> str:
    return (
        f"numa_hit {hit}\nnuma_miss {miss}\nnuma_foreign {foreign}\n"
        f"interleave_hit 0\nlocal_node {hit}\nother_node {miss}\n"
    )


def vmstat(stalls: int, swapped: int) -> str:
    return (
        f"nr_free_pages 1000\npswpin {swapped}\npswpout 0\nallocstall_dma 0\n"
        f"allocstall_normal {stalls}\nallocstall_movable {stalls}\n"
        f"compact_stall {stalls}\ncompact_fail {stalls // 2}\nthp_fault_fallback {stalls}\n"
    )


def process(host: AgentRoot, pid: int, name: str, parent: int = 1) -> None:
    """A process with a single thread that may run anywhere."""
    thread(host, pid, pid, f"0-{CPUS - 1}", 0, name, parent)
    host.write(f"proc/{pid}/stat", host.read(f"proc/{pid}/task/{pid}/stat"))
    host.write(f"proc/{pid}/comm", f"{name}\n")


def thread(
    host: AgentRoot, pid: int, tid: int, cpus: str, last: int, name: str = "nginx", parent: int = 1
) -> None:
    """A thread that may run on ``cpus`` and ran on ``last``."""
    own = f"proc/{pid}/task/{tid}"
    zeros = "0 " * 34
    host.write(f"{own}/stat", f"{tid} ({name}) S {parent} {zeros}{last} 0 0 0 0 0\n")
    host.write(f"{own}/status", f"Name:\t{name}\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\n")


KNOWN = table(FIXTURES / "sick_host.yaml")
SICK, HEALTHY = KNOWN["sick"], KNOWN["healthy"]


def make(host: DiagnosedHost, state: Mapping[str, Any], grows: int) -> None:
    """Lay a host out; 5 s later everything that tells of harm has grown ``grows``-fold."""
    host.says = {
        "ethtool -l eth0": channels(*state["channels"]),
        "ethtool -x eth0": indirection(*state["table"]),
        "ethtool -g eth0": ring(*state["ring"]),
        "ethtool -c eth0": "Adaptive RX: off  TX: off\nrx-usecs:\t3\n",
        "ethtool -k eth0": f"Features for eth0:\nntuple-filters: {state['ntuple']}\n",
        "ip -j route show default": state["routes"],
        GROUP_SHOWN: "ControlGroup=/system.slice/nginx.service\n",
    }
    host.write_all(_still(state))
    driver = host.path / NIC / "device/driver"
    driver.symlink_to("../../../../bus/pci/drivers/ixgbe")
    for pid, name in enumerate(state["programs"], 300):
        process(host, pid, name)
    for pid, last in ((501, 1 if state is SICK else 4), (502, 6)):
        thread(host, pid, pid, state["web"], last)
    host.write_all({f"proc/501/fd/{number}": "" for number in range(6)})
    _count(host, 1, 0)
    host.clock.then = lambda: _count(host, 1 + grows, 5)


def _still(state: Mapping[str, Any]) -> dict[str, str]:
    files = {name: text.format(**state) for name, text in KNOWN["files"].items()}
    # Four queues, two for each of the CPUs 0 and 1, and the vector of the link.
    for irq, cpus in {40: "0", 41: "1", 42: "0", 43: "1", 44: "0-7", 45: ""}.items():
        files[f"{NIC}/device/msi_irqs/{irq}"] = "msix\n"
        for name in ("smp_affinity_list", "effective_affinity_list") if cpus else ():
            files[f"proc/irq/{irq}/{name}"] = f"{cpus}\n"
    for number, gib in enumerate(state["shmem"]):
        files[f"sys/devices/system/node/node{number}/meminfo"] = node(gib, number)
    return files


def _count(host: DiagnosedHost, times: int, seconds: int) -> None:
    """Counters after so many seconds; those of harm are multiplied by ``times`` - 1."""
    harm = times - 1
    rx = 50_000_000 + 100_000 * seconds
    irqs = 30_000 * harm * 5
    busy = 4 if harm else 1
    host.says["ethtool -S eth0"] = nic_statistics(
        {
            "rx_packets": rx,
            "fdir_match": 1_000_000 + 330_000 * harm,
            "fdir_miss": 1_000 + 170_000 * harm,
            "rx_no_dma_resources": 1_000 * harm,
            "rx_missed_errors": 400 * harm,
        }
    )
    received = [450_000, 450_000, *[20_000] * 5, 0] if harm else [40_000] * CPUS
    host.write_all(
        {
            "proc/net/netstat": overflows(3 + 60 * harm),
            # The first of them wraps around.
            "proc/net/softnet_stat": softnet(
                [(rx, 10 * harm, 0xFFFFFFF0 + 400 * harm)] + [(rx, 0, 5 + 200 * harm)] * (CPUS - 1)
            ),
            "proc/softirqs": per_cpu(
                {
                    "HI": [1] * CPUS,
                    "NET_RX": [1_000 + (own if seconds else 0) for own in received],
                }
            ),
            "proc/interrupts": per_cpu(
                {
                    "40": [1_000 + irqs // 2, *[0] * (CPUS - 1)],
                    "41": [0, 1_000 + irqs // 2, *[0] * (CPUS - 2)],
                    "44": [9] * CPUS,
                    **({"45": [9] * CPUS} if harm else {}),
                    "NMI": [0] * CPUS,
                },
                {
                    "40": "PCI-MSIX-0000:03:00.0   1-edge      eth0-TxRx-0",
                    "41": "PCI-MSIX-0000:03:00.0   2-edge      eth0-TxRx-1",
                    "44": "PCI-MSIX-0000:03:00.0   0-edge      eth0",
                    "45": "PCI-MSIX-0000:03:00.0   5-edge      eth0-foo",
                },
            ),
            "proc/stat": stat(
                [1_000 + 100 * seconds * busy // 5] * 2 + [1_000] * (CPUS - 2),
                [9_000 + 100 * seconds - 100 * seconds * busy // 5] * 2
                + [9_000 + 100 * seconds] * (CPUS - 2),
            ),
            "proc/vmstat": vmstat(10 + 50 * harm, 400 * harm),
            "sys/devices/system/node/node0/numastat": numastat(
                10**6 + 10**5 * seconds, 0, 250_000 * harm
            ),
            "sys/devices/system/node/node1/numastat": numastat(10**6, 250_000 * harm, 0),
            f"{NIC}/statistics/rx_packets": f"{rx}\n",
            f"{NIC}/statistics/tx_packets": f"{100 * seconds}\n",
            f"{NIC}/statistics/rx_missed_errors": f"{400 * harm}\n",
        }
    )
