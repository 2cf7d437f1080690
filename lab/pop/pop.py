# SPDX-License-Identifier: Apache-2.0
"""The running PoP as its supervisor sees it: namespaces, hosts, load balancer, client."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from . import files, host, image, network, readiness, services
from .layout import CLIENT, CONTROLLER, LOAD_BALANCER, Address, LabError, Layout, addresses

# busybox init takes SIGUSR2 for "power off"; process 1 of a PID namespace dies of SIGKILL at once.
POWER_SIGNALS = {"off": signal.SIGUSR2, "cut": signal.SIGKILL}


@dataclass
class Host:
    """`pid` of its init is 0 while it is off; `boot_at` is a time.monotonic()."""

    address: Address
    pid: int = 0
    boots: int = 0
    boot_at: float | None = None


class PoP:
    """`post_seconds` is what a reboot takes before the kernel starts, as firmware would."""

    def __init__(self, layout: Layout, hosts: int, post_seconds: float) -> None:
        self.layout = layout
        self.hosts = {item.name: Host(item) for item in addresses(hosts)}
        self.post_seconds = post_seconds
        self.load = False
        self.controller = -1
        self.load_balancer: subprocess.Popen[bytes] | None = None
        self.client: subprocess.Popen[bytes] | None = None

    def bring_up(self, nic_queue: bool) -> None:
        """All of it, until it answers; LabError or OSError says what did not work."""
        self._make_disks(nic_queue)
        network.make_bridge()
        for item in self.hosts.values():
            self._boot(item)
        self.controller = self._join("controller", CONTROLLER, 2)
        balancer = self._join("balancer", LOAD_BALANCER, 3)
        client = self._join("client", CLIENT, 4)
        self._wait_for_hosts()
        self.load_balancer = services.start_load_balancer(balancer, self.addresses, self.layout)
        self.client = services.start_client(client, len(self.hosts), self.layout)
        self._wait_for_servers()

    @property
    def addresses(self) -> list[Address]:
        return [item.address for item in self.hosts.values()]

    def describe(self) -> dict[str, Any]:
        """For `status`; what dies is missed here."""
        return {
            "kind": "namespaces",
            "hosts": [
                {
                    "name": item.address.name,
                    "address": item.address.ip,
                    "state": "on" if item.pid else "off" if item.boot_at is None else "rebooting",
                    "boots": item.boots,
                }
                for item in self.hosts.values()
            ],
            "load": self.load,
            "load_balancer": _is_running(self.load_balancer),
            "client": _is_running(self.client),
        }

    def set_load(self, on: bool) -> None:
        """Start or stop new requests; those under way end by themselves."""
        pipe = self.client.stdin if self.client else None
        if pipe is None:
            raise LabError("the lab's client has ended")
        pipe.write(b"on\n" if on else b"off\n")
        pipe.flush()
        self.load = on

    def power(self, name: str, action: str) -> None:
        """Shut down ("off"), cut the power ("cut") or boot ("on"); what is so already stays so."""
        if name not in self.hosts:
            raise LabError(f"the lab has no host {name}")
        item = self.hosts[name]
        if action == "on":
            item.boot_at = item.boot_at if item.pid else time.monotonic()
            return
        if action not in POWER_SIGNALS:
            raise LabError(f"power is off, on or cut, not {action}")
        item.boot_at = None
        if item.pid:
            os.kill(item.pid, POWER_SIGNALS[action])

    def ended(self, pid: int, status: int) -> None:
        """A process of the supervisor ended: a host that asked for a reboot boots again."""
        for item in self.hosts.values():
            if item.pid == pid:
                item.pid = 0
                network.disconnect(item.address.name)
                if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGHUP:
                    item.boot_at = time.monotonic() + self.post_seconds

    def boot_due(self) -> float | None:
        """Boot the hosts whose time has come; seconds until the next one, None if none waits."""
        now = time.monotonic()
        for item in self.hosts.values():
            if item.boot_at is not None and item.boot_at <= now:
                self._boot(item)
        waiting = [item.boot_at - now for item in self.hosts.values() if item.boot_at is not None]
        return min(waiting, default=None)

    def _boot(self, item: Host) -> None:
        console = self.layout.console(item.address.name)
        item.boot_at = None
        item.boots += 1
        item.pid = host.boot(self.layout.disks, item.address, console)

    def _make_disks(self, nic_queue: bool) -> None:
        disks = self.layout.disks
        host.make_key(self.layout.key, "edgetune-lab")
        image.build(disks / "image", self.layout.key.with_suffix(".pub").read_text(), nic_queue)
        keys = {item.name: host.prepare_disk(disks / item.name, item) for item in self.addresses}
        files.write_known_hosts(self.layout, self.addresses, keys)
        files.write_inventory(self.layout, self.addresses)
        files.write_configuration(self.layout)

    def _join(self, port: str, address: str, number: int) -> int:
        namespace = network.new_namespace()
        network.connect(port, namespace, f"02:77:00:01:00:{number:02x}")
        network.set_address(namespace, address)
        network.know_neighbours(namespace, {item.ip: item.mac for item in self.addresses})
        return namespace

    def _wait_for_hosts(self) -> None:
        with network.inside(self.controller):
            readiness.wait_for_ssh(self.addresses)

    def _wait_for_servers(self) -> None:
        with network.inside(self.controller):
            readiness.wait_for_servers()


def _is_running(process: subprocess.Popen[bytes] | None) -> bool:
    return process is not None and process.poll() is None
