# SPDX-License-Identifier: Apache-2.0
"""BMCs of the lab on loopback, and what asks them, for the tests of ``edgetune.bmc``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgetune import clock
from edgetune.bmc import client
from edgetune.bmc.bmcs import Bmcs
from edgetune.bmc.credentials import Login
from edgetune.config import read_config
from edgetune.hosts.result import HostResult
from edgetune.inventory import Bmc, Host
from lab.bmc import Machine, Service, serve
from lab.bmc.certificates import make_certificates

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


def give_changes_up_soon(patch: pytest.MonkeyPatch) -> None:
    """Whose answer never comes; for all else there is time, however slow the machine is."""
    ask = client._Connection.ask

    def hurried(own: Any, method: str, path: str, until: float, *more: Any) -> Any:
        if method != "GET" and "/Sessions" not in path:
            until = min(until, clock.monotonic() + 1.0)
        return ask(own, method, path, until, *more)

    patch.setattr(client._Connection, "ask", hurried)


class _Hasty(clock.Clock):
    def sleep(self, seconds: float) -> None:
        super().sleep(seconds / 10)


@pytest.fixture
def brief_pauses() -> Iterator[None]:
    """A client waits a tenth of each pause for a BMC that is busy or was given a change."""
    with clock.use(_Hasty()):
        yield


class Site:
    """One BMC of each personality that is asked for, named e000, e001, ... in that order."""

    def __init__(self, directory: Path, *personalities: str) -> None:
        self.certificates = make_certificates(directory, ["127.0.0.1"])
        names = [f"e{number:03d}" for number in range(len(personalities))]
        self.machines = {name: Machine(name, kind) for name, kind in zip(names, personalities)}
        self._places: dict[Any, Machine] = {}
        self.server = serve(
            self._places,
            [("127.0.0.1", 0)] * len(names),
            self.certificates.certificate,
            self.certificates.key,
            Service("edgetune", PASSWORD),
        )
        self._places.update(zip(self.server.addresses, self.machines.values()))
        self.hosts = [
            host(name, f"https://127.0.0.1:{port}")
            for name, (_, port) in zip(names, self.server.addresses)
        ]

    def ask(
        self,
        verb: str,
        request: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **more: Any,
    ) -> HostResult:
        """Ask the first BMC."""
        return self.ask_all(verb, request, timeout, **more)[self.hosts[0].name]

    def ask_all(
        self,
        verb: str,
        request: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **more: Any,
    ) -> dict[str, HostResult]:
        """Ask them all the same."""
        asker = bmcs(self.certificates.authority, **more)
        return asker.ask(self.hosts, verb, lambda host: request or {}, timeout)

    def renew(self, machine: Machine) -> None:
        """Put another machine in the place of the first."""
        self._places[self.server.addresses[0]] = machine

    def close(self) -> None:
        self.server.close()
