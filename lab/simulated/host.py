# SPDX-License-Identifier: Apache-2.0
"""The private root of one simulated host: a disk, and what its kernel shows in /proc and /sys."""

from __future__ import annotations

import shlex
import shutil
import sys
import uuid
from pathlib import Path

from lab.bmc.machine import serial_of, uuid_of

from . import commands, sysctls
from .counters import CPUS

CHECKOUT = Path(__file__).parents[2]
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
CPU = "processor\t: {}\nmodel name\t: Simulated CPU\ncpu MHz\t\t: 2000.000\n\n"
KERNEL = {
    "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro quiet",
    "proc/cpuinfo": "".join(map(CPU.format, range(CPUS))),
    "proc/loadavg": "0.20 0.20 0.20 1/100 1000",
    "proc/meminfo": "MemTotal: 4028440 kB\nMemFree: 2814220 kB\nMemAvailable: 3216100 kB",
    "proc/version": "Linux version 6.1.0-lab (simulated)",
    "sys/devices/system/cpu/online": f"0-{CPUS - 1}",
    "sys/devices/system/cpu/possible": f"0-{CPUS - 1}",
    "sys/devices/system/node/online": "0",
    "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never",
    "sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never",
}


def install(root: Path, name: str, address: str) -> None:
    """Make the disk: what outlives a reboot. `address` is the one of eth0."""
    shutil.copytree(IMAGE, root)
    (root / "etc/sysctl.d").mkdir()
    (root / "var/lib").mkdir(parents=True)
    _write(root / "etc/hostname", name)
    _write(root / commands.ADDRESS, address)
    for command in commands.COMMANDS:
        _install_command(root, command)


def _install_command(root: Path, name: str) -> None:
    """A shell script, because a path in a #! line must be short and without blanks."""
    path = root / "usr/local/sbin" / name
    module = CHECKOUT / "lab/simulated/commands.py"
    words = [sys.executable, "-I", "-S", str(module), str(root), name]
    _write(path, f'#!/bin/sh\nexec {shlex.join(words)} "$@"')
    path.chmod(0o755)


def start_kernel(root: Path, name: str) -> str:
    """Make everything a boot makes anew, before any service starts; the new boot_id comes back."""
    for directory in RUN_TIME:
        shutil.rmtree(root / directory, ignore_errors=True)
    boot_id = str(uuid.uuid4())
    sysctls.write_defaults(root)
    for path, text in KERNEL.items():
        _write(root / path, text)
    _write(root / "proc/sys/kernel/random/boot_id", boot_id)
    _write(root / "proc/sys/kernel/hostname", name)
    _write(root / "sys/class/dmi/id/product_uuid", uuid_of(name))
    _write(root / "sys/class/dmi/id/product_serial", serial_of(name))
    _start_network(root)
    (root / "run").mkdir()
    sysctls.apply_stored(root)
    return boot_id


def _start_network(root: Path) -> None:
    (root / "proc/net").mkdir()
    nic = root / "sys/class/net/eth0"
    for path, text in NIC.items():
        _write(nic / path, text)
    (nic / "statistics").mkdir()
    driver = root / "sys/bus/virtio/drivers/virtio_net"
    driver.mkdir(parents=True)
    (nic / "device/driver").symlink_to("../../../../bus/virtio/drivers/virtio_net")
    commands.make_queues(root, dict.fromkeys(("rx", "tx"), commands.QUEUES))
    _write(root / "sys/class/net/lo/type", "772")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
