# SPDX-License-Identifier: Apache-2.0
"""A simulated host with FreeBSD: its disk, its boots, and what it counts in FreeBSD's formats."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.bmc.machine import serial_of, uuid_of
from lab.simulated.counters import CPUS, Counters
from lab.simulated.scripts import Answer, install_programs

from .programs import COUNTED, NAMES, REBOOT_MARK, Machine, Programs
from .releases import NEXT, become

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
RUN_TIME = ("var/run", "run")
"""The second one is the lab's own."""

HERTZ = 127
# An edge host as it comes: short queues.
PARAMETERS = """\
kern.ipc.soacceptqueue writable 8
hw.ncpu fixed {cpus}
"""
POOL = {
    "running": "default",
    "default": "default",
    "mounts": {},
    "created": {"default": "2024-11-05 10:00"},
}
# Segments sent again of those sent: a model of what the TCP stack does, not a measurement.
RESENT = {"freebsd": 0.02, "rack": 0.005}
LINKS = """\
Name    Mtu Network       Address           Ipkts Ierrs Idrop  Ibytes Opkts Oerrs  Obytes Coll Drop
ix0    1500 <Link#1>      90:e2:ba:00:00:01 {rx} 0 {dropped} {rx_bytes} {tx} 0 {tx_bytes} 0 0
"""


def install(root: Path, name: str, address: str, release: str) -> None:
    """Make the disk: what outlives a reboot. `address` is the one of ix0."""
    shutil.copytree(IMAGE, root)
    become(root, release)
    for directory in ("var/lib", "usr/local/etc/rc.d", "tmp"):
        (root / directory).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    _replace(root / "etc/rc.conf", "f000", name)
    _replace(root / "stub/ifconfig.txt", "192.0.2.2 ", f"{address} ")
    with (root / "stub/parameters.txt").open("a", encoding="utf-8") as parameters:
        parameters.write(PARAMETERS.format(cpus=CPUS))
    told = {"uuid": uuid_of(name), "serial": serial_of(name)}
    firmware = "".join(f'smbios.system.{what}="{value}"\n' for what, value in told.items())
    (root / "stub/firmware.txt").write_text(firmware, encoding="utf-8")
    machine = Machine(root)
    machine.keep("pool", {**POOL, "names": ["default", NEXT[release]]})
    machine.create(NEXT[release])
    install_programs(root, NAMES)


def _replace(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def start_kernel(root: Path, name: str) -> None:
    """Make everything a boot makes anew, before any service starts."""
    for directory in RUN_TIME:
        shutil.rmtree(root / directory, ignore_errors=True)
        (root / directory).mkdir()
    (root / REBOOT_MARK).unlink(missing_ok=True)
    machine = Machine(root)
    machine.boot()
    machine.keep("services", {"nginx": None})
    machine.read_sysctl_conf()


def answer(root: Path, name: str, words: Sequence[str]) -> Answer:
    """Carry a program out."""
    return Programs(Machine(root)).answer(name, *words)


def boot_hook(root: Path) -> list[str]:
    """The command of ours, as rc(8) runs it, with the rc.subr(8) of this root; none without it."""
    script = root / "usr/local/etc/rc.d/edgetune"
    if not script.exists():
        return []
    text = script.read_text(encoding="utf-8").replace("/etc/rc.subr", f"{root}/etc/rc.subr")
    return ["/bin/sh", "-c", text, "edgetune", "faststart"]


def start_service(root: Path) -> None:
    """As rc(8) does with nginx, after it has read sysctl.conf once more."""
    machine = Machine(root)
    machine.read_sysctl_conf()
    machine.start("nginx")


def backlog(root: Path) -> int | None:
    """The length of nginx' accept queue, None while it does not run."""
    nginx = Machine(root).known("services")["nginx"]
    return None if nginx is None else int(nginx["queue"])


def resent(root: Path) -> float:
    """Segments sent again of those sent, by the TCP stack of new connections."""
    parameters = Machine(root).known("kernel")["parameters"]
    return RESENT.get(parameters["net.inet.tcp.functions_default"], RESENT["freebsd"])


def queues(root: Path) -> Mapping[str, int]:
    """Its interrupts are those of the image."""
    return {}


def counted(counters: Counters) -> Mapping[str, str]:
    """Files of what a host counted, by path."""
    values = counters.values
    tcp = {
        "sent-packets": values["OutSegs"] + values["RetransSegs"],
        "sent-retransmitted-packets": values["RetransSegs"],
        "listen-queue-overflows": values["ListenOverflows"],
    }
    links = LINKS.format(
        rx=values["rx_packets"],
        dropped=values["rx_missed_errors"],
        rx_bytes=values["rx_bytes"],
        tx=values["tx_packets"],
        tx_bytes=values["tx_bytes"],
    )
    busy = round(sum(counters.busy) * HERTZ)
    idle = max(0, round(counters.uptime * CPUS * HERTZ) - busy)
    parameters = {
        "kern.cp_time": f"{busy} 0 0 0 {idle}",
        "dev.ix.0.mac_stats.rx_missed_packets": str(values["rx_missed_errors"]),
    }
    return {
        "stub/tcp.json": json.dumps({"statistics": {"tcp": tcp}}) + "\n",
        "stub/links.txt": links,
        COUNTED: json.dumps(parameters) + "\n",
    }
