# SPDX-License-Identifier: Apache-2.0
"""BMCs of the lab in this process, and what asks them, for the tests of ``edgetune.net.bmc``."""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.net.bmc.bmcs import Bmcs
from edgetune.net.bmc.credentials import Login
from edgetune.net.bmc.exchange import Exchange
from edgetune.net.http import Answer, NetError
from edgetune.net.result import HostResult
from edgetune.site.config import read_config
from edgetune.site.inventory import Bmc, Host
from lab.bmc import Machine, Service

PASSWORD = "one-that-nobody-may-see"
HOME = {"id": "bios.snoop_mode", "kind": "bios.snoop_mode", "target": {}, "value": "home"}


def setting(attribute: str, value: str) -> dict[str, Any]:
    """A rendered setting of the kind ``bios.attribute``."""
    target = {"attribute": attribute}
    return {
        "id": f"bios.attribute:{attribute}",
        "kind": "bios.attribute",
        "target": target,
        "value": value,
    }


def snoop(mode: str) -> dict[str, Any]:
    """A rendered setting of the kind ``bios.snoop_mode``."""
    return dict(HOME, value=mode)


def host(name: str, address: str, credentials: str = "lab", system: str = "") -> Host:
    """A host of which only the BMC matters."""
    bmc = Bmc(address, credentials, system)
    return Host(name, "127.0.0.1", 22, "", "", name, bmc)


def bmcs(authority: Path | str, password: str = PASSWORD, **more: Any) -> Bmcs:
    """What asks BMCs whose certificates this authority signed."""
    needed = {"inventory": "-", "ssh_key_file": "-", "ssh_known_hosts": "-"}
    config = read_config({**needed, "bmc_ca_file": str(authority), "bmc_timeout": 60, **more})
    return Bmcs(config, lambda name: Login("edgetune", password))


class Site:
    """Machines of these makes behind ``https://e000``, ``https://e001``, ... without a socket.

    ``spoil`` may change what is answered to a path. With the fault ``late`` a change is done, and
    its answer is given up.
    """

    def __init__(self, patch: pytest.MonkeyPatch, *kinds: str) -> None:
        names = [f"e{number:03d}" for number in range(len(kinds))]
        self.machines = {name: Machine(name, kind) for name, kind in zip(names, kinds)}
        self.hosts = [host(name, f"https://{name}") for name in names]
        self.spoil: Callable[[str, bytes], bytes] = lambda path, raw: raw
        self.service = Service("edgetune", PASSWORD)
        self._asker = bmcs("")
        patch.setattr(Exchange, "_new_connection", lambda own, *most: Line(self, own._host))

    def exchange(
        self, name: str, method: str, path: str, data: bytes, headers: Mapping[str, str]
    ) -> Answer:
        machine = self.machines.get(name)
        if machine is None:
            raise NetError("no such host")
        status, answered, raw = self.service.handle(machine, method, path, headers, data)
        if "late" in machine.faults and method != "GET" and "/Sessions" not in path:
            raise NetError("timed out")
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        named = {own.lower(): value for own, value in answered.items()}
        return Answer(status, "", named, self.spoil(path, raw))

    def lie_at(self, path: str, lie: bytes) -> None:
        self.spoil = lambda at, raw: lie if at == path else raw

    def ask(self, verb: str, request: Mapping[str, Any] | None = None, **more: Any) -> HostResult:
        """Ask the first BMC."""
        return self.ask_all(verb, request, **more)["e000"]

    def ask_all(
        self, verb: str, request: Mapping[str, Any] | None = None, **more: Any
    ) -> dict[str, HostResult]:
        """Ask them all the same."""
        asker = bmcs("", **more) if more else self._asker
        return asker.ask(self.hosts, verb, lambda host: request or {})


class Line:
    """A connection to a machine of a site."""

    patience, most, share = 0.0, math.inf, 1.0

    def __init__(self, site: Site, name: str) -> None:
        self._site, self._name = site, name

    def connect(self) -> None:
        """Always there."""

    def close(self) -> None:
        """Nothing to close."""

    def ask(
        self, method: str, path: str, until: float, data: bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        return self._site.exchange(self._name, method, path, data or b"", headers)
