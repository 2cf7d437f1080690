# SPDX-License-Identifier: Apache-2.0
"""The running PoPs: their hosts, the boots and traffic of those, and load balancers in front."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import asyncssh

from edgetune.base import clock
from lab.pop.files import write_campaign, write_configuration
from lab.pop.layout import Layout, shared

from . import commands, files, processes
from .balancer import Balancer, Server
from .bmcs import Bmcs
from .counters import Counters, Surge, replace
from .requests import AccessLog
from .scripts import serve_programs
from .ssh import HostServer, environment
from .system import SYSTEMS, System

DOWN_SECONDS = 2.0
TICK = 0.2
BUSY_SECONDS = 0.5
NOT_READY = "var/lib/edgetune-not-ready"


@dataclass
class Machine:
    """One host; it is off while `on` is False, and `boot` is the next one under way."""

    endpoint: files.Endpoint
    system: System
    root: Path
    ssh: HostServer
    counters: Counters
    balancer: Balancer
    on: bool = False
    boots: int = 0
    boot: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether each answer to its health check takes BUSY_SECONDS."""
        return (self.root / commands.BUSY_MARK).exists()

    @property
    def server(self) -> Server:
        """Itself as its load balancer sees it."""
        return self.balancer.servers[self.endpoint.name]

    @property
    def is_ready(self) -> bool:
        """False from the middle of a change until it is verified."""
        return not (self.root / NOT_READY).exists()

    def show_counters(self) -> None:
        """Have its programs and files tell what it counted."""
        self.counters.write(self.root, self.system.counted(self.counters))


class PoP:
    """Hosts on private roots, of one PoP or several of the same size; `load` says whether there is
    any traffic, `post_seconds` what the firmware takes in each reboot. The last `freebsd` of the
    hosts have FreeBSD, of these `releases` in turn.
    """

    def __init__(
        self,
        layout: Layout,
        hosts: int,
        pops: int,
        load: bool,
        post_seconds: float,
        freebsd: int,
        releases: Sequence[str],
    ) -> None:
        self.layout = layout
        self.load = load
        self.post_seconds = post_seconds
        self.health_url = ""
        self.sites: list[files.Site] = []
        self._chance = random.Random()
        self._surge = Surge(self._chance)
        self._log = AccessLog(self._chance)
        user_key = _make_user_key(layout.key)
        self._hosts = shared(files.endpoints(hosts, freebsd, releases), pops)
        self.balancers = {
            name: Balancer([Server(each.name, each.address) for each in own])
            for name, own in self._hosts.items()
        }
        self.machines = [
            self._machine(each, self.balancers[name], user_key)
            for name, own in self._hosts.items()
            for each in own
        ]
        self.bmcs = Bmcs({each.endpoint.name: each.endpoint.ip for each in self.machines}, layout)

    def _machine(self, endpoint: files.Endpoint, balancer: Balancer, user_key: str) -> Machine:
        root = self.layout.lab / "hosts" / endpoint.name / "root"
        ssh = HostServer(root, endpoint.ip, endpoint.port, user_key)
        system = SYSTEMS[endpoint.system]
        return Machine(endpoint, system, root, ssh, Counters(self._chance), balancer)

    async def bring_up(self) -> None:
        """All of it, until it answers; OSError says what did not work."""
        answers = {own.endpoint.name: partial(own.system.answer, own.root) for own in self.machines}
        self._programs = await serve_programs(self.layout.lab / "hosts", answers)
        for machine in self.machines:
            own = machine.endpoint
            machine.system.install(machine.root, own.name, own.address, own.release)
            await self._boot(machine)
        health = await asyncio.start_server(self._answer_health, "127.0.0.1", 0)
        self._servers = [health]
        for name, balancer in self.balancers.items():
            listening = await asyncio.start_server(balancer.serve, "127.0.0.1", 0)
            self._servers.append(listening)
            url = f"tcp://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            self.sites.append(files.Site(name, url, self._hosts[name]))
        self.health_url = f"http://127.0.0.1:{health.sockets[0].getsockname()[1]}/health"
        for machine in self.machines:  # which on real hosts is each one's own loopback
            machine.ssh.know_as(self.health_url, f"{self.health_url}/{machine.endpoint.name}")
        endpoints = [machine.endpoint for machine in self.machines]
        keys = {machine.endpoint.name: machine.ssh.public_key for machine in self.machines}
        urls = self.bmcs.listen(self._reset)
        files.write_inventory(self.layout, self.sites, urls, self.health_url)
        files.write_known_hosts(self.layout, endpoints, keys)
        write_campaign(self.layout, len(self.sites))
        write_configuration(self.layout, self.post_seconds)

    async def run(self) -> None:
        """For ever: let traffic flow, and boot what asked for it."""
        last = clock.monotonic()
        while True:
            await asyncio.sleep(TICK)
            now = clock.monotonic()
            self._flow(now - last)
            last = now
            for machine in self.machines:
                if machine.on and (machine.root / machine.system.REBOOT_MARK).exists():
                    self._take_down(machine)
                    self._start_boot(machine)

    def state(self) -> dict[str, Any]:
        """For `status`."""
        return {
            "kind": "simulated",
            "hosts": [
                {
                    "name": machine.endpoint.name,
                    "system": " ".join(filter(None, (own.system, own.release))),
                    "address": f"{machine.endpoint.ip}:{machine.endpoint.port}",
                    "state": "on" if machine.on else "rebooting" if machine.boot else "off",
                    "boots": machine.boots,
                    "bmc": self.bmcs.describe(machine.endpoint.name),
                }
                for machine in self.machines
                for own in [machine.endpoint]
            ],
            "load": self.load,
            "load_balancers": {site.name: site.balancer for site in self.sites},
            "health": self.health_url,
        }

    def _flow(self, seconds: float) -> None:
        load = self._surge.after(seconds) if self.load else 0.0
        for balancer in self.balancers.values():
            balancer.load = load
        running = [machine for machine in self.machines if machine.on]
        backlogs = [machine.system.backlog(machine.root) for machine in running]
        for machine, backlog in zip(running, backlogs):
            healthy = backlog is not None and machine.is_ready
            machine.server.up = healthy
        for machine, backlog in zip(running, backlogs):
            share = machine.balancer.share(machine.endpoint.name)
            mode = self.bmcs.snoop_mode(machine.endpoint.name)
            resent = machine.system.resent(machine.root)
            queues = machine.system.queues(machine.root)
            machine.counters.grow(seconds, backlog or 0, share, mode, resent, queues)
            self._log.grow(machine.root, seconds, share)
            machine.show_counters()

    def _reset(self, name: str, kind: str) -> None:
        """What a BMC was asked for; a simulated host goes down alike in whatever way it does."""
        machine = next(each for each in self.machines if each.endpoint.name == name)
        self._take_down(machine)
        if kind in ("ForceOff", "GracefulShutdown"):
            self.bmcs.switch_off(name)
            self._write_state()
        else:
            self._start_boot(machine)

    def _take_down(self, machine: Machine) -> None:
        if machine.boot:
            machine.boot.cancel()
        machine.on, machine.boot = False, None
        machine.server.up = False
        machine.ssh.stop()
        processes.end_below(machine.root)

    def _start_boot(self, machine: Machine) -> None:
        self.bmcs.begin_post(machine.endpoint.name)
        machine.boot = asyncio.get_running_loop().create_task(self._reboot(machine))

    async def _reboot(self, machine: Machine) -> None:
        self._write_state()
        await asyncio.sleep(DOWN_SECONDS + self.post_seconds)
        if self.bmcs.end_post(machine.endpoint.name):
            await self._boot(machine)
        machine.boot = None
        self._write_state()

    async def _boot(self, machine: Machine) -> None:
        """In the order of an init: kernel, stored sysctls, our boot hook, nginx, sshd."""
        machine.system.start_kernel(machine.root, machine.endpoint.name)
        machine.counters = Counters(self._chance)
        machine.show_counters()
        await _run_boot_hook(machine)
        try:
            machine.system.start_service(machine.root)
        except commands.Refusal as refusal:
            print(f"{machine.endpoint.name}: {refusal}", file=sys.stderr)
        await machine.ssh.start()
        machine.boots += 1
        machine.on = True
        machine.server.up = machine.is_ready

    async def _answer_health(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """The services of all hosts: there as long as the lab is, and ready as their hosts are."""
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
            machine = self._of_health(path)
            status, body = self._health(path, machine)
            if machine and machine.is_busy:
                await asyncio.sleep(BUSY_SECONDS)
            head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write((head + body).encode())
            await writer.drain()
        except (OSError, ValueError, IndexError, EOFError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    def _of_health(self, path: str) -> Machine | None:
        """The host of /health/HOST."""
        found = (each for each in self.machines if path == f"/health/{each.endpoint.name}")
        return next(found, None)

    def _health(self, path: str, machine: Machine | None) -> tuple[str, str]:
        """Status and body; /health alone is nobody's."""
        if machine is None and path != "/health":
            return "404 Not Found", ""
        if machine and not machine.is_ready:
            return "503 Not Ready", "not ready\n"
        return "200 OK", "ok\n"

    def _write_state(self) -> None:
        known = json.loads(self.layout.state.read_text(encoding="utf-8"))
        replace(self.layout.state, json.dumps({**known, **self.state()}, indent=2) + "\n")


async def _run_boot_hook(machine: Machine) -> None:
    root = machine.root
    command = machine.system.boot_hook(root)
    if command:
        hook = await asyncio.create_subprocess_exec(*command, cwd=root, env=environment(root))
        await hook.wait()


def _make_user_key(path: Path) -> str:
    """Write the private key; the public one comes back."""
    key = asyncssh.generate_private_key("ssh-ed25519", "edgetune-lab")
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(key.export_private_key())
    return key.export_public_key().decode()
