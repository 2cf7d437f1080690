# SPDX-License-Identifier: Apache-2.0
"""The running PoPs as the supervisor sees them: namespaces, hosts, BMCs, load balancer, client."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import disk, files, host, image, network, processes, readiness, services
from .bmcs import Bmcs
from .drops import Drops
from .layout import (
    ANYCAST,
    BACK_CONTROLLER,
    BMC,
    CLIENT,
    CONTROLLER,
    INPUT,
    LOAD_BALANCER,
    REFUSED,
    SECOND_BALANCER,
    Address,
    LabError,
    Layout,
    addresses,
    sites,
)
from .load_balancer import Balancer, Balancers
from .machines import Machines
from .monitoring import Monitoring
from .router import Router

# busybox init takes SIGUSR2 for "power off", SIGTERM for "reboot"; process 1 of a PID namespace
# dies of SIGKILL at once.
POWER_SIGNALS = {
    "off": signal.SIGUSR2,
    "cut": signal.SIGKILL,
    "restart": signal.SIGTERM,
    "reset": signal.SIGKILL,
    "nmi": signal.SIGKILL,
}
# What a reset that a BMC was asked for does to the host; any other one is a "reset".
RESETS = {
    "On": "on",
    "ForceOn": "on",
    "ForceOff": "cut",
    "GracefulShutdown": "off",
    "GracefulRestart": "restart",
    "Nmi": "nmi",
}
# What a BMC writes into its log about a host that is a machine.
NOTES = {
    "panic": "The operating system stopped: kernel panic.",
    "watchdog": "The watchdog timer expired, and reset the system.",
}
HEAR_SECONDS = 0.5

FAULTS = ("cut", "slow", "full", "busy", "steal", "slow_disk")

# What is no host: its port of the bridge, its address, the end of its MAC.
OTHERS = {
    "controller": (CONTROLLER, 2),
    "balancer": (LOAD_BALANCER, 3),
    "client": (CLIENT, 4),
    "bmc": (BMC, 5),
}
SECOND = {"balancer2": (SECOND_BALANCER, 6)}


@dataclass
class Host:
    """`pid` of its init is 0 while it is off; `boot_at` is a time.monotonic().

    `leaving`: it was told to go down; `returns`: and then to be on again.
    """

    address: Address
    pid: int = 0
    boots: int = 0
    boot_at: float | None = None
    leaving: bool = False
    returns: bool = False


class PoP:
    """`post_seconds` is what a reboot takes before the kernel starts, as firmware would."""

    bmcs: Bmcs

    def __init__(
        self,
        layout: Layout,
        hosts: int,
        pops: int,
        post_seconds: float,
        drops: bool,
        prometheus: bool = False,
        machines: int = 0,
        image: str = "",
        anycast: bool = False,
        balancers: int = 1,
        application: bool = False,
    ) -> None:
        self.layout = layout
        self.sites = sites(addresses(hosts, machines), pops)
        self.hosts = {item.name: Host(item) for item in addresses(hosts, machines)}
        self.machines = Machines(layout, Path(image))
        self.post_seconds = post_seconds
        self.prometheus = prometheus
        self.anycast = anycast
        self.application = application
        self.others = {**OTHERS, **(SECOND if balancers > 1 else {})}
        self.balancers = [LOAD_BALANCER, SECOND_BALANCER][:balancers]
        self.load = False
        self.surge = 1
        self.namespaces: dict[str, int] = {}  # of what is at the other end of each port
        self.cut: set[str] = set()
        self.slow: set[str] = set()
        self.full: set[str] = set()
        self.steal: set[str] = set()
        self.slow_disk: set[str] = set()
        self.busy: dict[str, subprocess.Popen[bytes] | None] = {}  # a machine has it in itself
        self.drops = Drops(layout.disks, drops)
        self.balancer: Balancers | Router | None = None
        self.client: subprocess.Popen[bytes] | None = None
        self.monitoring: Monitoring | None = None

    def bring_up(self, nic_queue: bool, tell: Callable[[str], None]) -> None:
        """All of it, until it answers; LabError or OSError says what did not work. `tell` is told
        what takes long.
        """
        self._make_disks(nic_queue)
        network.make_bridge()
        self._join_others()
        self.bmcs = Bmcs(self.namespaces["bmc"], self.addresses, self.layout)
        for item in self.hosts.values():
            self._boot(item)
        with network.inside(self.namespaces["controller"]):
            readiness.wait_for_ssh(self.addresses, self.machines, tell)
        self.balancer = self._start_balancer(self.namespaces["balancer"])
        if self.prometheus:
            controller = self.namespaces["controller"]
            self.monitoring = Monitoring(controller, self.addresses, self.layout)
        client = self.namespaces["client"]
        address = ANYCAST if self.anycast else ",".join(self.balancers)
        counts = (len(self.hosts), len(self.sites))
        self.client = services.start_client(client, *counts, address, self.layout, self.application)
        self.bmcs.wait_until_ready()
        readiness.wait_for_servers(self.balancer)
        readiness.wait_for_client(self.layout.client)
        if self.monitoring:
            self.monitoring.wait_until_ready()

    @property
    def addresses(self) -> list[Address]:
        return [item.address for item in self.hosts.values()]

    def describe(self) -> dict[str, Any]:
        """For `status`; what dies is missed here."""
        client = self.client is not None and self.client.poll() is None
        return {
            "kind": "namespaces",
            "hosts": [
                {
                    "name": item.address.name,
                    "address": item.address.ip,
                    "state": "on" if item.pid else "off" if item.boot_at is None else "rebooting",
                    "boots": item.boots,
                    "hardware": item.address.hardware,
                    "bmc": self.bmcs.describe(item.address),
                }
                for item in self.hosts.values()
            ],
            "load": self.load and client,
            "surge": self.surge,
            "load_balancer": self.balancer is not None and self.balancer.is_running(),
            "client": client,
            "bmcs": not self.bmcs.has_ended,
            "monitoring": self.monitoring.describe() if self.monitoring else {},
            "drops_by_snoop_mode": self.drops.possible,
            "muted": self.balancer.muted if isinstance(self.balancer, Balancers) else [],
            "faults": {name: sorted(getattr(self, name)) for name in FAULTS},
        }

    def set_load(self, on: bool, times: int = 1) -> None:
        """See `control.set_load`; requests that are under way end by themselves."""
        if not 1 <= times <= 10:
            raise LabError(f"the load is 1 to 10 times the usual one, not {times}", INPUT)
        pipe = self.client.stdin if self.client else None
        if pipe is None:
            raise LabError("the lab's client has ended", REFUSED)
        pipe.write(f"on {times}\n".encode() if on else b"off\n")
        pipe.flush()
        self.load, self.surge = on, times if on else 1

    def power(self, name: str, action: str) -> None:
        """Shut down ("off"), cut the power ("cut") or boot ("on"), where what is so already stays
        so; reboot ("restart") or cut the power for a moment ("reset").
        """
        item = self._host(name)
        if action != "on" and action not in POWER_SIGNALS:
            raise LabError(f"power is on, {', '.join(POWER_SIGNALS)}, not {action}", INPUT)
        if not item.pid:
            self._power_without_system(item, action)
        elif action == "on":
            item.returns = item.leaving
        elif item.address.is_machine:
            self._press(item, action)
        else:
            item.leaving, item.returns = True, action in ("restart", "reset", "nmi")
            os.kill(item.pid, POWER_SIGNALS[action])

    def _press(self, item: Host, action: str) -> None:
        """A button of a machine; whether an NMI takes it down is its own business."""
        if action != "nmi":
            item.leaving, item.returns = True, action in ("restart", "reset")
        try:
            self.machines.power(item.address.name, action)
        except OSError:  # QEMU ended just now, or heeds its monitor no more
            os.kill(item.pid, signal.SIGKILL)

    def _power_without_system(self, item: Host, action: str) -> None:
        if action in ("off", "cut"):
            item.boot_at = None
            self.bmcs.switch_off(item.address.name)
        elif action != "on" or item.boot_at is None:
            self._begin_post(item)

    def bmc_fault(self, host: str, fault: str, on: bool) -> None:
        """See `faults.bmc_fault`."""
        self.bmcs.set_fault(self._host(host).address.name, fault, on)

    def enter(self, name: str) -> list[int]:
        """Descriptors of a running host's namespaces, in the order of host.NAMESPACES."""
        if self._host(name).address.is_machine:
            raise LabError(f"host {name} is a machine, and has no namespaces of its own", INPUT)
        try:
            return host.open_namespaces(self._running(name))
        except FileNotFoundError:  # it has just ended
            raise LabError(f"host {name} is off", REFUSED) from None

    def balancer_fault(self, how: str, number: int = 1) -> None:
        """See `faults.balancer`."""
        self._balancer().fault(how, number)

    def balancer_state(self) -> dict[str, dict[str, Any]]:
        """See `faults.balancer_state`."""
        return self._balancer().servers()

    def set_monitoring(self, name: str, on: bool) -> None:
        """See `faults.set_monitoring`."""
        if self.monitoring is None:
            raise LabError("the lab was built without --prometheus", REFUSED)
        self.monitoring.set_running(name, on)

    def set_link(self, port: str, up: bool) -> None:
        """See `faults.set_link`; the cable of a host that is off is set when it boots."""
        self._expect_port(port)
        _note(self.cut, port, not up)
        if port in self.namespaces:
            network.set_link(port, up)

    def slow_link(self, port: str, on: bool) -> None:
        """See `faults.slow_link`; the cable of a host that is off is set when it boots."""
        self._expect_port(port)
        was_slow = port in self.slow
        _note(self.slow, port, on)
        if port in self.namespaces and on != was_slow:
            if was_slow:
                network.speed_up(port, self.namespaces[port])
            self._put_queues(port)

    def fill_disk(self, host: str, full: bool) -> None:
        """See `faults.fill_disk`, which fills that of a machine itself."""
        if self._host(host).address.is_machine:
            _note(self.full, host, full)
            return
        own = self.layout.disks / self._host(host).address.name / "own"
        if full:
            disk.fill(own)
        else:
            disk.empty(own)
        _note(self.full, host, full)

    def keep_busy(self, name: str, on: bool) -> None:
        """See `faults.keep_busy`, which starts it on a machine itself."""
        pid = self._running(name)
        if on and name not in self.busy:
            virtual = self._host(name).address.is_machine
            self.busy[name] = None if virtual else host.keep_busy(pid)
        elif not on and (process := self.busy.pop(name, None)):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def slow_application(self, name: str, cause: str, on: bool) -> None:
        """See `faults.slow_application`, which tells the host."""
        if not self.application:
            raise LabError("the lab was built without --application", REFUSED)
        self._running(name)
        _note(getattr(self, cause), name, on)

    def kill(self, host: str, program: str) -> int:
        """See `faults.kill`."""
        return processes.kill(self._running(host), program)

    def boots_told(self) -> float:
        """How many hosts tell Prometheus their boots."""
        return self.monitoring.total("edgetune_boot_info") if self.monitoring else 0.0

    def ended(self, pid: int, status: int) -> None:
        """A process of the supervisor ended: a host that asked for a reboot boots again."""
        for item in self.hosts.values():
            if item.pid == pid:
                if self._rebooted(item, status) or item.returns:
                    self._begin_post(item)
                else:
                    self.bmcs.switch_off(item.address.name)
                item.pid, item.leaving, item.returns = 0, False, False
                self.busy.pop(item.address.name, None)
                for ended in (self.steal, self.slow_disk):
                    ended.discard(item.address.name)
                network.disconnect(item.address.name)
                os.close(self.namespaces.pop(item.address.name))

    def do_due(self) -> float | None:
        """Boot the hosts whose time has come, do to them what their BMCs were asked for, show them
        their drops; seconds until there is more to do, None if nothing waits.
        """
        now = time.monotonic()
        for item in self.hosts.values():
            if item.boot_at is not None and item.boot_at <= now:
                self._end_post(item)
        self._obey_bmcs()
        self._note_happened()
        waiting = [item.boot_at for item in self.hosts.values() if item.boot_at is not None]
        hear = HEAR_SECONDS if self.machines.any_on else None
        due = [hear, self.drops.show_due(), *(max(0.0, moment - now) for moment in waiting)]
        return min((seconds for seconds in due if seconds is not None), default=None)

    def _rebooted(self, item: Host, status: int) -> bool:
        """Whether a host that ended has asked to be booted again."""
        if item.address.is_machine:
            self._note_happened()
            return self.machines.ended(item.address.name)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGHUP

    def _note_happened(self) -> None:
        for name, what in self.machines.happened():
            self.bmcs.note(name, NOTES[what])

    def _obey_bmcs(self) -> None:
        while resets := self.bmcs.take_resets():
            for name, kind in resets:
                self.power(name, RESETS.get(kind, "reset"))

    def _begin_post(self, item: Host) -> None:
        item.boot_at = time.monotonic() + self.post_seconds
        self.bmcs.begin_post(item.address.name)

    def _end_post(self, item: Host) -> None:
        item.boot_at = None
        if self.bmcs.end_post(item.address.name):
            self._boot(item)

    def _boot(self, item: Host) -> None:
        name = item.address.name
        item.boots += 1
        if item.address.is_machine:
            self._wire(name, item.address.wire_mac)
            item.pid = self.machines.boot(item.address, self.namespaces[name])
            return
        self._wire(name, item.address.mac)
        self.drops.begin(name)
        console = self.layout.console(name)
        item.pid = host.boot(self.layout.disks, item.address, console, self.namespaces[name])

    def _wire(self, port: str, mac: str) -> None:
        self.namespaces[port] = network.new_namespace()
        network.connect(port, self.namespaces[port], mac, up=port not in self.cut)
        self._put_queues(port)

    def _put_queues(self, port: str) -> None:
        """A slow cable lets no burst through that a card could miss."""
        if port in self.slow:
            self._slow_down(port)
        elif port in self.hosts and not self.hosts[port].address.is_machine:
            self.drops.put_queue(port, self.bmcs.snoop_mode(port))

    def _slow_down(self, port: str) -> None:
        # All of the PoP's traffic goes through the cables of the load balancer and the client.
        all_of_it = 2 * len(self.hosts)
        shares = {
            "controller": 0.5,
            **dict.fromkeys(("balancer", "balancer2", "client"), all_of_it),
        }
        network.slow_down(port, self.namespaces[port], shares.get(port, 1))

    def _start_balancer(self, namespace: int) -> Balancers | Router:
        if not self.anycast:
            others = [self.namespaces[port] for port in SECOND if port in self.namespaces]
            pairs = zip([namespace, *others], self.balancers)
            return Balancers([Balancer(n, self.sites, self.layout, ip) for n, ip in pairs])
        network.set_route(self.namespaces["client"], ANYCAST, LOAD_BALANCER)
        return Router(namespace, self.addresses, self.layout)

    def _make_disks(self, nic_queue: bool) -> None:
        disks = self.layout.disks
        host.make_key(self.layout.key, "edgetune-lab")
        public_key = self.layout.key.with_suffix(".pub").read_text()
        image.build(
            disks / "image",
            public_key,
            nic_queue,
            Path("/"),
            self.prometheus,
            self.anycast,
            self.application,
        )
        keys = {item.name: self._make_disk(item) for item in self.addresses}
        files.write_known_hosts(self.layout, self.addresses, keys)
        both = len(self.balancers) > 1
        files.write_inventory(self.layout, self.sites, self.prometheus, self.anycast, both)
        files.write_campaign(self.layout, len(self.sites))
        machines = any(item.is_machine for item in self.addresses)
        files.write_configuration(self.layout, self.post_seconds, self.prometheus, machines)

    def _make_disk(self, address: Address) -> str:
        """Its public host key comes back."""
        if address.is_machine:
            return self.machines.make(address)
        return host.prepare_disk(self.layout.disks / address.name, address)

    def _join_others(self) -> None:
        macs = {ip: f"02:77:00:01:00:{number:02x}" for ip, number in self.others.values()}
        known = {**{item.ip: item.mac for item in self.addresses}, **macs}
        known.update({item.bmc: macs[BMC] for item in self.addresses})
        for port, (ip, _) in self.others.items():
            self._wire(port, macs[ip])
            shared = [item.bmc for item in self.addresses] if port == "bmc" else []
            if port == "controller" and self.machines.any_made:
                shared = [BACK_CONTROLLER]
            network.set_addresses(self.namespaces[port], [ip, *shared])
            network.know_neighbours(self.namespaces[port], known)

    def _host(self, name: str) -> Host:
        if name not in self.hosts:
            raise LabError(f"the lab has no host {name}", INPUT)
        return self.hosts[name]

    def _running(self, name: str) -> int:
        """PID of the host's init."""
        pid = self._host(name).pid
        if not pid:
            raise LabError(f"host {name} is off", REFUSED)
        return pid

    def _balancer(self) -> Balancers | Router:
        if self.balancer is None:
            raise LabError("the lab's load balancer has not been started", REFUSED)
        return self.balancer

    def _expect_port(self, name: str) -> None:
        if name not in self.hosts and name not in self.others:
            raise LabError(f"a port is a host, {', '.join(self.others)}, not {name}", INPUT)


def _note(names: set[str], name: str, there: bool) -> None:
    (names.add if there else names.discard)(name)
