# SPDX-License-Identifier: Apache-2.0
"""The BMCs of all simulated hosts: threads beside the hosts' event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import cycle
from typing import Any, Callable

from edgetune.base import clock
from lab.bmc import Machine, Server, Service, serve
from lab.pop.files import BMC_USER, write_bmc_secrets
from lab.pop.layout import PERSONALITIES, Layout


class Bmcs:
    """Each knows the BIOS of its host; `hosts` is {name: IP}."""

    def __init__(self, hosts: Mapping[str, str], layout: Layout) -> None:
        self._hosts = hosts
        self._layout = layout
        self._systems = {
            name: Machine(name, maker, clock=clock.monotonic, driven=True)
            for name, maker in zip(hosts, cycle(PERSONALITIES))
        }
        self._server: Server | None = None
        self._urls: dict[str, str] = {}

    def listen(self, on_reset: Callable[[str, str], None]) -> dict[str, str]:
        """Answer from now on, at the host's own IP; {name: URL} comes back.

        on_reset(name, kind) is called in the running event loop.
        """
        loop = asyncio.get_running_loop()

        def tell(name: str, kind: str) -> None:
            loop.call_soon_threadsafe(on_reset, name, kind)

        for system in self._systems.values():
            system.on_reset = tell
        layout = self._layout
        write_bmc_secrets(layout, set(self._hosts.values()))
        service = Service(BMC_USER, layout.bmc_password.read_text(encoding="utf-8").strip())
        anywhere = [(ip, 0) for ip in self._hosts.values()]
        self._server = serve({}, anywhere, layout.bmc_certificate, layout.bmc_key, service)
        places = self._server.addresses
        self._server.machines = dict(zip(places, self._systems.values()))
        self._urls = {name: f"https://{ip}:{port}" for name, (ip, port) in zip(self._hosts, places)}
        return self._urls

    def describe(self, name: str) -> dict[str, Any]:
        """For `status`."""
        system = self._systems[name]
        with system.lock:
            return {
                "address": self._urls[name],
                "personality": system.personality.name,
                "snoop_mode": system.snoop_mode,
                "faults": sorted(system.faults),
            }

    def snoop_mode(self, name: str) -> str:
        system = self._systems[name]
        with system.lock:
            return system.snoop_mode

    def begin_post(self, name: str) -> None:
        """The host went down, and will boot."""
        system = self._systems[name]
        with system.lock:
            system.begin_post()

    def end_post(self, name: str) -> bool:
        """Whether the host gets as far as booting."""
        system = self._systems[name]
        with system.lock:
            return system.end_post()

    def switch_off(self, name: str) -> None:
        system = self._systems[name]
        with system.lock:
            system.power(False)
