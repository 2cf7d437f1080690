# SPDX-License-Identifier: Apache-2.0
"""What bench.bmc compares: edgetune, OpenStack's sushy, and DMTF's redfish.

To read is to learn the current attributes, the pending ones, and the registry of each BMC. To
change is one reset, or one change of the BIOS, of a BMC that does not answer in time.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Protocol

from bench._bmc_site import HOME, USER, Site, Target
from bench._table import BenchError
from edgetune.base.documents.host import BiosPlan
from edgetune.net.bmc.bmcs import Bmcs
from edgetune.net.bmc.credentials import Login
from edgetune.net.result import HostResult
from edgetune.site.config import read_config
from edgetune.site.inventory import Bmc, Host

PARALLEL = 32
"""How many BMCs each client asks at once: what bmc_threads is when nobody sets it."""

DEFAULT = 10
"""What sushy (`server_side_retries`) and redfish (`max_retry`) have where nobody says otherwise."""

PATIENCE = 60.0
"""Seconds for an answer (sushy, redfish), or for a conversation (edgetune): the longest wait."""

SHORT_PATIENCE = 1.0
"""The same for sushy and redfish and the answer that does not come."""

SHORT_CONVERSATION = 4.0
"""The same for edgetune, which waits for one answer at most half of what is left."""

PAUSE = 0.1
"""Seconds between two attempts of sushy; as it comes they are 3. redfish always pauses for 1."""

SNOOP_MODE: Mapping[str, Any] = {
    "id": "bios.snoop_mode",
    "kind": "bios.snoop_mode",
    "target": {},
    "value": "home",
    "only": None,
    "restart": None,
}

Read = Callable[[Sequence[Target]], None]


class Peer(Protocol):
    """Each does its work once; the last two answer what their caller is told."""

    def read(self, targets: Sequence[Target]) -> None: ...

    def reset(self, target: Target) -> str: ...

    def set(self, target: Target) -> str: ...


class Edgetune:
    """edgetune itself, with the CA read anew as in every action."""

    def __init__(self, site: Site) -> None:
        self._login = Login(USER, site.password)
        self._config = read_config(
            {
                "inventory": "none",
                "ssh_key_file": "none",
                "ssh_known_hosts": "none",
                "bmc_ca_file": str(site.authority),
                "bmc_threads": PARALLEL,
            }
        )

    def read(self, targets: Sequence[Target]) -> None:
        """Plan Home Snoop, which is pending everywhere."""
        vendors = {target.name: target.vendor for target in targets}

        def request(host: Host) -> dict[str, Any]:
            return {"settings": [SNOOP_MODE], "ours": HOME[vendors[host.name]]}

        for result in self._ask(targets, "plan", request).values():
            if result.failed:
                raise BenchError(f"edgetune: {result.error}")
            (row,) = result.read(BiosPlan).settings
            if (row.status, row.persistent) != ("change", "home"):
                raise BenchError(f"edgetune: {result.host}: {row}")

    def reset(self, target: Target) -> str:
        """One reset."""
        return self._change(target, "reset", {"kind": "GracefulRestart", "os_answers": True})

    def set(self, target: Target) -> str:
        """Home Snoop with the next boot."""
        wanted = HOME[target.vendor]
        return self._change(target, "set", {"attributes": wanted, "ours": wanted})

    def _change(self, target: Target, verb: str, request: Mapping[str, Any]) -> str:
        results = self._ask([target], verb, lambda host: request, SHORT_CONVERSATION)
        return results[target.name].reason or "done"

    def _ask(
        self,
        targets: Sequence[Target],
        verb: str,
        request: Callable[[Host], Mapping[str, Any]],
        timeout: float = PATIENCE,
    ) -> dict[str, HostResult]:
        hosts = [
            Host(target.name, "none", 22, "", "", target.name, Bmc(target.url, "bench", ""))
            for target in targets
        ]
        return Bmcs(self._config, lambda name: self._login).ask(hosts, verb, request, timeout)


class Sushy:
    """OpenStack's client, which knows systems, BIOS and registries."""

    def __init__(self, site: Site, retries: int = DEFAULT, logs_out: bool = True) -> None:
        self._site, self._retries, self._logs_out = site, retries, logs_out
        self._library = importlib.import_module("sushy")
        logging.getLogger("sushy").setLevel(logging.CRITICAL)

    def read(self, targets: Sequence[Target]) -> None:
        """One connector and one session for each BMC."""
        _for_all(self._read_one, targets)

    def _read_one(self, target: Target) -> None:
        with self._connected(target) as client:
            bios = client.get_system().bios
            registry = bios.get_attribute_registry()
            names = {entry.name for entry in registry.registry_entries.attributes}
            expect_pending("sushy", target, bios.attributes, bios.pending_attributes, names)

    def reset(self, target: Target) -> str:
        """One `reset_system`."""
        with self._connected(target) as client:
            system, kind = client.get_system(), self._library.ResetType.GRACEFUL_RESTART
            with self._in_a_hurry(client):
                return _told(lambda: system.reset_system(kind))

    def set(self, target: Target) -> str:
        """One `set_attributes`."""
        with self._connected(target) as client:
            bios, when = client.get_system().bios, self._library.ApplyTime.ON_RESET
            with self._in_a_hurry(client):
                return _told(lambda: bios.set_attributes(HOME[target.vendor], apply_time=when))

    @contextlib.contextmanager
    def _in_a_hurry(self, client: Any) -> Iterator[None]:
        client._conn._default_request_timeout = SHORT_PATIENCE
        yield
        client._conn._default_request_timeout = PATIENCE

    @contextlib.contextmanager
    def _connected(self, target: Target) -> Iterator[Any]:
        root = f"{target.url}/redfish/v1"
        connector = self._library.connector.Connector(
            root,
            verify=str(self._site.authority),
            server_side_retries=self._retries,
            server_side_retries_delay=PAUSE,
            default_request_timeout=PATIENCE,
        )
        connector._session.trust_env = False  # it may name a proxy
        login = self._library.auth.SessionOrBasicAuth(USER, self._site.password)
        try:
            yield self._library.Sushy(root, auth=login, connector=connector)
        finally:
            if self._logs_out:
                login.close()


class Redfish:
    """DMTF's client, which knows requests and sessions: all links are followed by hand."""

    def __init__(self, site: Site, retries: int = DEFAULT) -> None:
        self._site, self._retries = site, retries
        self._library = importlib.import_module("redfish")

    def read(self, targets: Sequence[Target]) -> None:
        """One client and one session for each BMC."""
        _for_all(self._read_one, targets)

    def _read_one(self, target: Target) -> None:
        with self._connected(target) as client:
            bios, settings = self._bios(client, self._system(client))
            registries = client.get(client.root["Registries"]["@odata.id"]).dict["Members"]
            (file,) = (
                link["@odata.id"]
                for link in registries
                if bios["AttributeRegistry"] in link["@odata.id"]
            )
            registry = client.get(client.get(file).dict["Location"][0]["Uri"]).dict
            names = {one["AttributeName"] for one in registry["RegistryEntries"]["Attributes"]}
            pending = settings.dict["Attributes"]
            expect_pending("redfish", target, bios["Attributes"], pending, names)

    def reset(self, target: Target) -> str:
        """One POST, as its user writes it."""
        with self._connected(target) as client:
            action = self._system(client)["Actions"]["#ComputerSystem.Reset"]["target"]
            body = {"ResetType": "GracefulRestart"}
            return _told(lambda: client.post(action, body=body, timeout=SHORT_PATIENCE))

    def set(self, target: Target) -> str:
        """One PATCH, as its user writes it."""
        with self._connected(target) as client:
            _, settings = self._bios(client, self._system(client))
            body = {
                "Attributes": HOME[target.vendor],
                "@Redfish.SettingsApplyTime": {"ApplyTime": "OnReset"},
            }
            link, condition = settings.request.path, {"If-Match": settings.getheader("ETag")}
            return _told(
                lambda: client.patch(link, body=body, headers=condition, timeout=SHORT_PATIENCE)
            )

    def _system(self, client: Any) -> Any:
        (system,) = client.get(client.root["Systems"]["@odata.id"]).dict["Members"]
        return client.get(system["@odata.id"]).dict

    def _bios(self, client: Any, system: Any) -> tuple[Any, Any]:
        """The attributes with what is around them, and the answer that is the settings object."""
        bios = client.get(system["Bios"]["@odata.id"]).dict
        return bios, client.get(bios["@Redfish.Settings"]["SettingsObject"]["@odata.id"])

    @contextlib.contextmanager
    def _connected(self, target: Target) -> Iterator[Any]:
        client = self._library.redfish_client(
            target.url,
            USER,
            self._site.password,
            cafile=str(self._site.authority),
            timeout=PATIENCE,
            max_retry=self._retries,
            check_connectivity=False,
        )
        client._session.trust_env = False  # it may name a proxy
        client.login()
        try:
            yield client
        finally:
            client.logout()


def _told(change: Callable[[], object]) -> str:
    """ "done", or the name of the exception."""
    try:
        change()
    except Exception as error:  # of whatever library
        return type(error).__name__
    return "done"


def expect_pending(
    client: str,
    target: Target,
    current: Mapping[str, Any],
    pending: Mapping[str, Any],
    known: set[str],
) -> None:
    """BenchError unless Home Snoop is seen to be pending, and to be in the registry."""
    for name, value in HOME[target.vendor].items():
        if name not in known or pending.get(name) != value or current.get(name) in (None, value):
            raise BenchError(f"{client}: {target.name}: {name} was not read as pending")


def _for_all(one: Callable[[Target], None], targets: Sequence[Target]) -> None:
    with ThreadPoolExecutor(min(PARALLEL, len(targets))) as pool:
        list(pool.map(one, targets))
