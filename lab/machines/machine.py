# SPDX-License-Identifier: Apache-2.0
"""One machine: its disk, what hardware QEMU gives it, its power, and what happened to it."""

from __future__ import annotations

import io
import socket
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .monitor import Monitor

CPUS = 2  # one for each NUMA node; with four, a boot takes twice as long
QUEUES = 4
MEMORY_MIB = 1280
# Emulation takes all the CPU time that there is; what stands around the machine comes first.
GIVE_WAY = ("nice", "-n", "5")
# Names within the machine's directory, where QEMU runs: an address of a socket has 108 bytes.
DISK, IDENTITY, AGENT = "disk.qcow2", "identity.tar", "agent.sock"
# Where the image's lab-identity.service finds it.
IDENTITY_KEY = "opt/edgetune/identity"


@dataclass(frozen=True)
class Card:
    """A network card at the tap device `tap` of the namespace in which QEMU is started."""

    tap: str
    mac: str


@dataclass(frozen=True)
class Machine:
    """`front` is virtio_net with QUEUES queues, on NUMA node 0; `back` is e1000e, on node 1.

    directory: its own, of which the path does not matter. console: a file that gets what it says
    on its serial port.
    """

    directory: Path
    name: str
    uuid: str
    serial: str
    front: Card
    back: Card
    console: Path

    @property
    def agent(self) -> Path:
        """The socket for `console.run`."""
        return self.directory / AGENT

    def make(self, image: Path, identity: Mapping[str, tuple[int, str]]) -> None:
        """Its disk, which shows `image` until it is written to, and the files that make it this
        machine at its first boot, {path below /: (mode, text)}.
        """
        self.directory.mkdir(mode=0o700, parents=True)
        backing = ["-F", "raw", "-b", str(image)]
        words = ["qemu-img", "create", "-q", "-f", "qcow2", *backing, str(self.directory / DISK)]
        subprocess.run(words, check=True, capture_output=True)
        place = self.directory / IDENTITY
        place.touch(mode=0o600)
        with tarfile.open(place, "w") as archive:
            for path, (mode, text) in identity.items():
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(text.encode()), mode
                archive.addfile(entry, io.BytesIO(text.encode()))

    def start(self, log: Path) -> Running:
        """Switch it on, in the present network namespace, where the taps of its cards are.

        Does not wait. `log` gets what QEMU complains of.
        """
        (self.directory / AGENT).unlink(missing_ok=True)
        own, of_qemu = socket.socketpair()
        with own, of_qemu, log.open("ab") as told:
            process = subprocess.Popen(
                [*GIVE_WAY, *qemu(self, of_qemu.fileno())],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                pass_fds=[of_qemu.fileno()],
            )
            return Running(process, Monitor(own.dup()))


class Running:
    """A machine that was switched on. QEMU ends when the machine is off or asks for a reboot."""

    def __init__(self, process: subprocess.Popen[bytes], monitor: Monitor) -> None:
        self._process = process
        self._monitor = monitor
        self.pid = process.pid
        self.rebooted = False

    def power(self, action: str) -> None:
        """ "off" and "restart" press the power button; "reset" and "nmi" are those of the board;
        "cut" takes the power away. A machine that hangs heeds no button.
        """
        commands = {
            "off": "system_powerdown",
            "restart": "system_powerdown",
            "reset": "system_reset",
            "nmi": "inject-nmi",
            "cut": "quit",
        }
        self._monitor.execute(commands[action])

    def happened(self) -> list[str]:
        """What a BMC would note since the last call: "panic", "watchdog"."""
        noted = []
        for event in self._monitor.take_events():
            kind, data = event["event"], event.get("data", {})
            if kind == "GUEST_PANICKED":
                noted.append("panic")
            elif kind == "WATCHDOG":
                noted.append("watchdog")
            elif kind == "SHUTDOWN":
                self.rebooted = data.get("reason") in ("guest-reset", "host-qmp-system-reset")
        return noted

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def forget(self) -> None:
        """Its process has ended, and somebody else has waited for it."""
        self._process.returncode = 0
        self._monitor.close()


def qemu(machine: Machine, monitor: int) -> list[str]:
    """The command; `monitor` is the descriptor for its monitor."""
    return [
        *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none"),
        *("-name", machine.name, "-uuid", machine.uuid),
        *("-smbios", f"type=1,manufacturer=edgetune,product=lab,serial={machine.serial}"),
        *("-M", "q35", "-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max"),
        *("-m", str(MEMORY_MIB), "-smp", f"{CPUS},sockets={CPUS}"),
        *_nodes(),
        *("-drive", f"file={DISK},if=none,id=disk"),
        *("-device", "virtio-blk-pci,drive=disk,bus=pcie.0"),
        *_cards(machine),
        *("-device", "virtio-rng-pci,bus=pcie.0"),
        # QEMU ends where the machine would boot again: what a BMC does then is the lab's business.
        *("-no-reboot", "-action", "watchdog=reset,panic=none"),
        # The watchdog of the chip set (iTCO), wired up as on servers; and how a panic is told.
        *("-global", "ICH9-LPC.noreboot=false", "-device", "pvpanic-pci,bus=pcie.0"),
        *("-fw_cfg", f"name={IDENTITY_KEY},file={IDENTITY}"),
        *("-chardev", f"file,id=console,path={machine.console},append=on"),
        *("-serial", "chardev:console"),
        *("-chardev", f"socket,id=agent,path={AGENT},server=on,wait=off"),
        *("-device", "virtio-serial-pci,bus=pcie.0"),
        *("-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"),
        *("-chardev", f"socket,id=monitor,fd={monitor}", "-mon", "chardev=monitor,mode=control"),
    ]


def _nodes() -> list[str]:
    """A NUMA node for each CPU, with a bus of its own that tells its cards' node."""
    words = []
    for node in range(CPUS):
        size = MEMORY_MIB // CPUS
        words += ["-object", f"memory-backend-ram,id=memory{node},size={size}M"]
        words += ["-numa", f"node,nodeid={node},cpus={node},memdev=memory{node}"]
        bus = f"pxb-pcie,id=bus{node},bus=pcie.0,bus_nr={64 * (node + 1)},numa_node={node}"
        port = f"pcie-root-port,id=port{node},bus=bus{node},chassis={node + 1}"
        words += ["-device", bus, "-device", port]
    return words


def _cards(machine: Machine) -> list[str]:
    front, back = machine.front, machine.back
    tap = "script=no,downscript=no"
    several = f"mq=on,vectors={2 * QUEUES + 2}"
    return [
        *("-netdev", f"tap,id=front,ifname={front.tap},queues={QUEUES},{tap}"),
        *("-device", f"virtio-net-pci,netdev=front,bus=port0,mac={front.mac},{several}"),
        *("-netdev", f"tap,id=back,ifname={back.tap},{tap}"),
        *("-device", f"e1000e,netdev=back,bus=port1,mac={back.mac}"),
    ]
