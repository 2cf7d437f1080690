# SPDX-License-Identifier: Apache-2.0
"""The private root of a simulated host with Linux: a disk, and what its kernel shows."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from lab.bmc.machine import serial_of, uuid_of

from . import commands, sysctls
from .commands import NIC_QUEUES, QUEUES, REBOOT_MARK, STEERING, answer, backlog
from .commands import start_nginx as start_service
from .counters import CPUS, NIC_COUNTERS, TCP, TCP_EXT, Counters
from .scripts import install_programs

__all__ = [
    "REBOOT_MARK",
    "answer",
    "backlog",
    "boot_hook",
    "counted",
    "install",
    "queues",
    "resent",
    "start_kernel",
    "start_service",
]

IMAGE = Path(__file__).with_name("image")
RUN_TIME = ("proc", "sys", "run")

NIC = {
    "address": "02:77:00:00:00:01",
    "carrier": "1",
    "flags": "0x1003",
    "mtu": "1500",
    "operstate": "up",
    "speed": "10000",
    "tx_queue_len": "1000",
    "type": "1",
    "device/numa_node": "0",
    "device/vendor": "0x1af4",
}
FIRST_IRQ = {"rx": 24, "tx": 24 + QUEUES}
IRQ_NAME = {"rx": "input", "tx": "output"}
TICKS = 100  # of /proc/stat, per second
CPU = "processor\t: {}\nmodel name\t: Simulated CPU\ncpu MHz\t\t: 2000.000\n\n"
KERNEL = {
    "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro quiet",
    "proc/cpuinfo": "".join(map(CPU.format, range(CPUS))),
    "proc/loadavg": "0.20 0.20 0.20 1/100 1000",
    "proc/meminfo": "MemTotal: 4028440 kB\nMemFree: 2814220 kB\nMemAvailable: 3216100 kB\n"
    "SwapTotal: 0 kB\nSwapFree: 0 kB",
    "proc/buddyinfo": "Node 0, zone   Normal 900 800 700 600 500 400 300 200 100 90 600",
    "proc/vmstat": "pswpin 0\npswpout 0\nallocstall_normal 0\ncompact_stall 0\ncompact_fail 0",
    "proc/version": "Linux version 6.1.0-lab (simulated)",
    "sys/devices/system/cpu/online": f"0-{CPUS - 1}",
    "sys/devices/system/cpu/possible": f"0-{CPUS - 1}",
    "sys/devices/system/node/online": "0",
    "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never",
    "sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never",
}


def install(root: Path, name: str, address: str, release: str = "") -> None:
    """Make the disk: what outlives a reboot. `address` is the one of eth0; there is one release."""
    shutil.copytree(IMAGE, root)
    (root / "etc/sysctl.d").mkdir()
    (root / "var/lib").mkdir(parents=True)
    _write(root / "etc/hostname", name)
    _write(root / commands.ADDRESS, address)
    install_programs(root, commands.COMMANDS)


def start_kernel(root: Path, name: str) -> None:
    """Make everything a boot makes anew, before any service starts."""
    for directory in RUN_TIME:
        shutil.rmtree(root / directory, ignore_errors=True)
    sysctls.write_defaults(root)
    for path, text in KERNEL.items():
        _write(root / path, text)
    _write(root / "proc/sys/kernel/random/boot_id", str(uuid.uuid4()))
    _write(root / "proc/sys/kernel/hostname", name)
    _write(root / "sys/class/dmi/id/product_uuid", uuid_of(name))
    _write(root / "sys/class/dmi/id/product_serial", serial_of(name))
    _start_network(root)
    (root / "run").mkdir()
    sysctls.apply_stored(root)


def boot_hook(root: Path) -> list[str]:
    """The command of ours; none where there is none."""
    script = root / "etc/init.d/S99edgetune"
    return ["/bin/sh", str(script), "start"] if script.exists() else []


def resent(root: Path) -> float:
    """Segments sent again of those sent."""
    return 0.002


def queues(root: Path) -> Mapping[str, int]:
    """How many queues its card has of each side."""
    return {kind: len(list((root / NIC_QUEUES).glob(f"{kind}-*"))) for kind in STEERING}


def counted(counters: Counters) -> Mapping[str, str]:
    """Files of what a host counted, by path."""
    values = counters.values
    files = {f"sys/class/net/eth0/statistics/{name}": f"{values[name]}\n" for name in NIC_COUNTERS}
    files["proc/net/netstat"] = _table("TcpExt", TCP_EXT, values)
    files["proc/net/snmp"] = _table("Tcp", TCP, values)
    share = values["rx_packets"] // CPUS
    files["proc/net/softnet_stat"] = f"{share:08x}{' 00000000' * 12}\n" * CPUS
    files["proc/softirqs"] = f"{'':12}{'CPU0':>11}{'CPU1':>11}\n NET_RX: {share:>11}{share:>11}\n"
    files["proc/stat"] = _stat(counters)
    files["proc/interrupts"] = _interrupts(counters)
    idle = counters.uptime * CPUS - sum(counters.busy)
    files["proc/uptime"] = f"{counters.uptime:.2f} {idle:.2f}\n"
    return files


def _stat(counters: Counters) -> str:
    busy = [round(seconds * TICKS) for seconds in counters.busy]
    idle = [max(0, round(counters.uptime * TICKS) - ticks) for ticks in busy]
    rows = [("cpu ", sum(busy), sum(idle))]
    rows += [(f"cpu{cpu}", busy[cpu], idle[cpu]) for cpu in range(CPUS)]
    return "".join(f"{name} {used} 0 0 {free} 0 0 0 0 0 0\n" for name, used, free in rows)


def _interrupts(counters: Counters) -> str:
    """Those of each queue, as virtio names them; any CPU may serve them."""
    every = sum(counters.queues.values())
    each = counters.values["interrupts"] // max(1, CPUS * every)
    told = f"{'':12}" + "".join(f"{f'CPU{cpu}':>11}" for cpu in range(CPUS)) + "\n"
    for side, first in FIRST_IRQ.items():
        for number in range(counters.queues.get(side, 0)):
            name = f"PCI-MSIX-0000:00:03.0 {first + number}-edge virtio0-{IRQ_NAME[side]}.{number}"
            told += f"{first + number:>4}: " + f"{each:>11}" * CPUS + f"   {name}\n"
    return told + f" LOC: {0:>11}{0:>11}\n"


def _table(title: str, names: tuple[str, ...], values: Mapping[str, int]) -> str:
    numbers = " ".join(str(values[name]) for name in names)
    return f"{title}: {' '.join(names)}\n{title}: {numbers}\n"


def _start_network(root: Path) -> None:
    (root / "proc/net").mkdir()
    nic = root / "sys/class/net/eth0"
    for path, text in NIC.items():
        _write(nic / path, text)
    (nic / "statistics").mkdir()
    for irq in range(FIRST_IRQ["rx"], FIRST_IRQ["tx"] + QUEUES):
        _write(nic / f"device/msi_irqs/{irq}", "msix")
        _write(root / f"proc/irq/{irq}/smp_affinity_list", f"0-{CPUS - 1}")
    driver = root / "sys/bus/virtio/drivers/virtio_net"
    driver.mkdir(parents=True)
    (nic / "device/driver").symlink_to("../../../../bus/virtio/drivers/virtio_net")
    commands.make_queues(root, dict.fromkeys(("rx", "tx"), commands.QUEUES))
    _write(root / "sys/class/net/lo/type", "772")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
