# SPDX-License-Identifier: Apache-2.0
"""The running PoP as its supervisor sees it: namespaces, hosts, load balancer, client."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from . import disk, files, host, image, network, processes, readiness, services
from .balancer import Balancer
from .layout import CLIENT, CONTROLLER, LOAD_BALANCER, Address, LabError, Layout, addresses

# busybox init takes SIGUSR2 for "power off"; process 1 of a PID namespace dies of SIGKILL at once.
POWER_SIGNALS = {"off": signal.SIGUSR2, "cut": signal.SIGKILL}


# What is no host: its port of the bridge, its address, the end of its MAC.
OTHERS = {"controller": (CONTROLLER, 2), "balancer": (LOAD_BALANCER, 3), "client": (CLIENT, 4)}


@dataclass
class Host:
    """`pid` of its init is 0 while it is off; `boot_at` is a time.monotonic().

    `leaving`: it was told to power off; `returns`: and then to be on again.
    """

    address: Address
    pid: int = 0
    boots: int = 0
    boot_at: float | None = None
    leaving: bool = False
    returns: bool = False


class PoP:
    """`post_seconds` is what a reboot takes before the kernel starts, as firmware would."""

    def __init__(self, layout: Layout, hosts: int, post_seconds: float) -> None:
        self.layout = layout
        self.hosts = {item.name: Host(item) for item in addresses(hosts)}
        self.post_seconds = post_seconds
        self.load = False
        self.namespaces: dict[str, int] = {}  # of what is at the other end of each port
        self.cut: set[str] = set()
        self.slow: set[str] = set()
        self.full: set[str] = set()
        self.balancer: Balancer | None = None
        self.client: subprocess.Popen[bytes] | None = None

    def bring_up(self, nic_queue: bool) -> None:
        """All of it, until it answers; LabError or OSError says what did not work."""
        self._make_disks(nic_queue)
        network.make_bridge()
        for item in self.hosts.values():
            self._boot(item)
        self._join_others()
        with network.inside(self.namespaces["controller"]):
            readiness.wait_for_ssh(self.addresses)
        self.balancer = Balancer(self.namespaces["balancer"], self.addresses, self.layout)
        client = self.namespaces["client"]
        self.client = services.start_client(client, len(self.hosts), self.layout)
        readiness.wait_for_servers(self.balancer)
        readiness.wait_for_client(self.layout.client)

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
            "load_balancer": self.balancer is not None and self.balancer.is_running(),
            "client": self.client is not None and self.client.poll() is None,
            "faults": {name: sorted(getattr(self, name)) for name in ("cut", "slow", "full")},
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
        item = self._host(name)
        if action == "on":
            item.returns = item.leaving
            item.boot_at = item.boot_at if item.pid else time.monotonic()
            return
        if action not in POWER_SIGNALS:
            raise LabError(f"power is off, on or cut, not {action}")
        item.boot_at = None
        item.leaving, item.returns = item.pid != 0, False
        if item.pid:
            os.kill(item.pid, POWER_SIGNALS[action])

    def enter(self, name: str) -> list[int]:
        """Descriptors of a running host's namespaces, in the order of host.NAMESPACES."""
        try:
            return host.open_namespaces(self._running(name))
        except FileNotFoundError:  # it has just ended
            raise LabError(f"host {name} is off") from None

    def balancer_fault(self, how: str) -> None:
        """See `faults.balancer`."""
        self._balancer().fault(how)

    def balancer_state(self) -> dict[str, dict[str, Any]]:
        """See `faults.balancer_state`."""
        return self._balancer().servers()

    def set_link(self, port: str, up: bool) -> None:
        """See `faults.set_link`; the cable of a host that is off is set when it boots."""
        self._expect_port(port)
        _note(self.cut, port, not up)
        if port in self.namespaces:
            network.set_link(port, up)

    def slow_link(self, port: str, on: bool) -> None:
        """See `faults.slow_link`; the cable of a host that is off is set when it boots."""
        self._expect_port(port)
        if port in self.namespaces and on:
            self._slow_down(port)
        elif port in self.namespaces and port in self.slow:
            network.speed_up(port, self.namespaces[port])
        _note(self.slow, port, on)

    def fill_disk(self, host: str, full: bool) -> None:
        """See `faults.fill_disk`."""
        own = self.layout.disks / self._host(host).address.name / "own"
        if full:
            disk.fill(own)
        else:
            disk.empty(own)
        _note(self.full, host, full)

    def kill(self, host: str, program: str) -> int:
        """See `faults.kill`."""
        return processes.kill(self._running(host), program)

    def ended(self, pid: int, status: int) -> None:
        """A process of the supervisor ended: a host that asked for a reboot boots again."""
        for item in self.hosts.values():
            if item.pid == pid:
                rebooted = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGHUP
                if rebooted or item.returns:
                    item.boot_at = time.monotonic() + self.post_seconds
                item.pid, item.leaving, item.returns = 0, False, False
                network.disconnect(item.address.name)
                os.close(self.namespaces.pop(item.address.name))

    def boot_due(self) -> float | None:
        """Boot the hosts whose time has come; seconds until the next one, None if none waits."""
        now = time.monotonic()
        for item in self.hosts.values():
            if item.boot_at is not None and item.boot_at <= now:
                self._boot(item)
        waiting = [item.boot_at - now for item in self.hosts.values() if item.boot_at is not None]
        return min(waiting, default=None)

    def _boot(self, item: Host) -> None:
        name = item.address.name
        item.boot_at = None
        item.boots += 1
        self._wire(name, item.address.mac)
        console = self.layout.console(name)
        item.pid = host.boot(self.layout.disks, item.address, console, self.namespaces[name])

    def _wire(self, port: str, mac: str) -> None:
        self.namespaces[port] = network.new_namespace()
        network.connect(port, self.namespaces[port], mac, up=port not in self.cut)
        if port in self.slow:
            self._slow_down(port)

    def _slow_down(self, port: str) -> None:
        # All of the PoP's traffic goes through the cables of the load balancer and the client.
        all_of_it = 2 * len(self.hosts)
        shares = {"controller": 0.5, "balancer": all_of_it, "client": all_of_it}
        network.slow_down(port, self.namespaces[port], shares.get(port, 1))

    def _make_disks(self, nic_queue: bool) -> None:
        disks = self.layout.disks
        host.make_key(self.layout.key, "edgetune-lab")
        image.build(disks / "image", self.layout.key.with_suffix(".pub").read_text(), nic_queue)
        keys = {item.name: host.prepare_disk(disks / item.name, item) for item in self.addresses}
        files.write_known_hosts(self.layout, self.addresses, keys)
        files.write_inventory(self.layout, self.addresses)
        files.write_configuration(self.layout)

    def _join_others(self) -> None:
        macs = {ip: f"02:77:00:01:00:{number:02x}" for ip, number in OTHERS.values()}
        known = {**{item.ip: item.mac for item in self.addresses}, **macs}
        for port, (ip, _) in OTHERS.items():
            self._wire(port, macs[ip])
            network.set_address(self.namespaces[port], ip)
            network.know_neighbours(self.namespaces[port], known)

    def _host(self, name: str) -> Host:
        if name not in self.hosts:
            raise LabError(f"the lab has no host {name}")
        return self.hosts[name]

    def _running(self, name: str) -> int:
        """PID of the host's init."""
        pid = self._host(name).pid
        if not pid:
            raise LabError(f"host {name} is off")
        return pid

    def _balancer(self) -> Balancer:
        if self.balancer is None:
            raise LabError("the lab's load balancer has not been started")
        return self.balancer

    def _expect_port(self, name: str) -> None:
        if name not in self.hosts and name not in OTHERS:
            raise LabError(f"a port is a host, {', '.join(OTHERS)}, not {name}")


def _note(names: set[str], name: str, there: bool) -> None:
    (names.add if there else names.discard)(name)
