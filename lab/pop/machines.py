# SPDX-License-Identifier: Apache-2.0
"""Hosts that are virtual machines: what each is made of, and its power.

Each sits in a network namespace as the other hosts do. There a switch joins the cable of the host
with the two taps that its cards are plugged into. The process of its QEMU stands for its power.
"""

from __future__ import annotations

from pathlib import Path

from lab.bmc.machine import serial_of, uuid_of
from lab.machines import serial
from lab.machines.machine import Card, Machine, Running

from . import host, network
from .layout import CONTROLLER, Address, LabError, Layout

FRONT, BACK = "tap0", "tap1"
CARD = """[Match]
MACAddress={mac}

[Network]
Address={ip}/16
LinkLocalAddressing=no
IPv6AcceptRA=no
"""
DEFAULT_ROUTE = f"""
[Route]
Gateway={CONTROLLER}
"""


class Machines:
    """Those of one lab; `image` is the disk that they begin with."""

    def __init__(self, layout: Layout, image: Path) -> None:
        self._layout = layout
        self._image = image
        self._running: dict[str, Running] = {}

    def make(self, address: Address) -> str:
        """Its disk and identity; its public host key comes back."""
        machine = self._machine(address)
        machine.directory.parent.mkdir(mode=0o700, exist_ok=True)
        key = self._layout.machines / f"{address.name}.key"
        host.make_key(key, address.name)
        public_key = key.with_suffix(".key.pub").read_text()
        client_key = self._layout.key.with_suffix(".pub").read_text()
        front = CARD.format(mac=address.mac, ip=address.ip) + DEFAULT_ROUTE
        back = CARD.format(mac=address.back_mac, ip=address.back)
        machine.make(
            self._image,
            {
                "etc/hostname": (0o644, f"{address.name}\n"),
                "etc/hosts": (0o644, f"127.0.0.1 localhost\n{address.ip} {address.name}\n"),
                "etc/lab-address": (0o644, f"{address.ip}\n"),
                "etc/systemd/network/10-front.network": (0o644, front),
                "etc/systemd/network/20-back.network": (0o644, back),
                "etc/ssh/ssh_host_ed25519_key": (0o600, key.read_text()),
                "etc/ssh/ssh_host_ed25519_key.pub": (0o644, public_key),
                "root/.ssh/authorized_keys": (0o600, client_key),
            },
        )
        key.unlink()
        return public_key

    def boot(self, address: Address, namespace: int) -> int:
        """Switch it on in that namespace, which has the cable; the PID of its QEMU comes back."""
        network.plug_in(namespace, FRONT, BACK)
        with network.inside(namespace):
            running = self._machine(address).start(self._log(address.name))
        self._running[address.name] = running
        return running.pid

    def expect_on(self, name: str) -> None:
        """LabError where its QEMU has ended, before anybody waited for that."""
        if self._running[name].has_ended:
            raise LabError(f"{name} went off while it booted: see {self._log(name)}")

    def told(self, name: str) -> str:
        """See `serial.told`."""
        return serial.told(self._layout.console(name))

    def power(self, name: str, action: str) -> None:
        """See `Running.power`."""
        self._running[name].power(action)

    def happened(self) -> list[tuple[str, str]]:
        """(machine, "panic" or "watchdog") of all since the last call."""
        return [(name, what) for name, own in self._running.items() for what in own.happened()]

    @property
    def any_made(self) -> bool:
        return self._layout.machines.is_dir()

    @property
    def any_on(self) -> bool:
        return bool(self._running)

    def ended(self, name: str) -> bool:
        """Its QEMU ended: whether the machine is to boot again."""
        running = self._running.pop(name)
        running.forget()
        return running.rebooted

    def _log(self, name: str) -> Path:
        return self._layout.console(f"{name}-qemu")

    def _machine(self, address: Address) -> Machine:
        return Machine(
            directory=self._layout.machines / address.name,
            name=address.name,
            uuid=uuid_of(address.name),
            serial=serial_of(address.name),
            front=Card(FRONT, address.mac),
            back=Card(BACK, address.back_mac),
            console=self._layout.console(address.name),
        )
