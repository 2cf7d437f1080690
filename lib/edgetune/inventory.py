# SPDX-License-Identifier: Apache-2.0
"""PoPs, their hosts and load balancers. The YAML file is one source behind the interface."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Protocol
from urllib.parse import urlsplit

from edgetune.addresses import canonical, canonical_url
from edgetune.errors import InputError
from edgetune.fields import Fields
from edgetune.files import load_yaml
from edgetune.traffic import DRIVERS, driver_class

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}"
"""Of PoPs and hosts: such names stand in keys of records and in commands to load balancers."""

CHECKS = ("marker", "none")
"""Whether a load balancer's health check fails while a host holds the not-ready marker."""

UNTOLD = "none"
"""What ``server_address`` says of a server whose address the load balancer does not tell."""

HEALTH_TLS = ("verified", "insecure")
"""Whether the certificate of an https health check is verified against the host's CA store."""

_HEALTH = r"https?://[A-Za-z0-9.:\[\]-]+([/?][!-~]*)?"
_DNS_NAME = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
_HTTPS = r"https://[A-Za-z0-9.:\[\]-]+"


@dataclass(frozen=True)
class Bmc:
    """The baseboard controller of a host.

    ``address`` is ``https://HOST[:PORT]``, ``credentials`` the name of what it is logged in with,
    ``system`` the id of the host where the BMC has several ("" for the only one). ``machine`` is
    the UUID or serial number that it has to tell; it vouches for a host that tells none itself.
    """

    address: str
    credentials: str
    system: str = ""
    machine: str = ""


@dataclass(frozen=True)
class Host:
    """An edge server. ``server`` is its name in the load balancer.

    ``server_address`` is where the load balancer sends its requests, given only where that is
    no address of its own interfaces (NAT), or UNTOLD where the load balancer tells none.
    """

    name: str
    address: str
    port: int
    rack: str
    hardware: str
    server: str
    bmc: Bmc | None = None
    server_address: str = ""


@dataclass(frozen=True)
class LoadBalancer:
    """Where a PoP's traffic is steered: one of DRIVERS, with the values of its ``fields``.

    ``checks`` is one of CHECKS.
    """

    driver: str
    fields: Mapping[str, str]
    checks: str = CHECKS[0]

    @property
    def place(self) -> tuple[str, ...]:
        """The same for two entries that mean one load balancer."""
        known = driver_class(self.driver).fields
        return (self.driver, *(known[name].same(text) for name, text in self.fields.items()))


@dataclass(frozen=True)
class Pop:
    """A site. ``floor`` is the share of hosts in service that we may never go below.

    ``health`` is the URL that each host asks of its own service, by the name ``health_name`` (""
    for the URL's), and ``health_tls`` one of HEALTH_TLS.
    ``ports`` are those on which its hosts serve; a drained host has no connection to them.
    Campaigns select PoPs by ``region`` and ``labels``.
    """

    name: str
    floor: float
    health: str
    ports: tuple[int, ...]
    reboot_time: float
    load_balancer: LoadBalancer
    hosts: tuple[Host, ...]
    region: str = ""
    labels: tuple[str, ...] = ()
    health_name: str = ""
    health_tls: str = HEALTH_TLS[0]

    @property
    def must_serve(self) -> int:
        """How many hosts have to stay in service, whatever we do."""
        return math.ceil(self.floor * len(self.hosts) - 1e-9)

    def host(self, name: str) -> Host:
        """The host of that name; InputError if the PoP has none."""
        if name not in self._by_name:
            raise InputError("inventory", f"pops.{self.name}.hosts", f"has no host {name!r}")
        return self._by_name[name]

    @functools.cached_property
    def _by_name(self) -> dict[str, Host]:
        return {host.name: host for host in self.hosts}


class Inventory(Protocol):
    """What the rest of edgetune asks of an inventory, whatever it is kept in."""

    def pop_names(self) -> list[str]:
        """Names of all PoPs, in their order."""

    def pop(self, name: str) -> Pop:
        """One PoP; InputError if it is unknown."""


class YamlInventory:
    """An inventory in one YAML file, checked as a whole when it is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        top = Fields(load_yaml(path), str(path))
        pops = top.inside("pops").named(NAME)
        self._pops = {name: _read_pop(name, fields) for name, fields in pops}
        top.done()
        _refuse_shared(str(path), list(self._pops.values()))

    def pop_names(self) -> list[str]:
        """Names of all PoPs, in the order of the file."""
        return list(self._pops)

    def pop(self, name: str) -> Pop:
        """One PoP; InputError names those there are."""
        if name not in self._pops:
            known = ", ".join(sorted(self._pops)) or "none"
            raise InputError(str(self._path), "pop", f"there is no PoP {name!r}; known: {known}")
        return self._pops[name]


def _read_pop(name: str, fields: Fields) -> Pop:
    hosts = fields.inside("hosts")
    health = fields.text("health", "", pattern=_HEALTH)
    credentials = _read_credentials(fields)
    pop = Pop(
        name=name,
        floor=fields.number("floor", 0.7, minimum=0, maximum=1),
        health=health,
        ports=_read_ports(fields, health),
        reboot_time=fields.duration("reboot_time", 300.0, minimum=0),
        load_balancer=_read_load_balancer(fields.inside("load_balancer")),
        hosts=tuple(_read_host(host, below, credentials) for host, below in hosts.named(NAME)),
        region=fields.text("region", "", pattern=NAME),
        labels=fields.texts("labels", []),
        health_name=fields.text("health_name", "", pattern=_DNS_NAME),
        health_tls=fields.text("health_tls", HEALTH_TLS[0], choices=HEALTH_TLS),
    )
    _refuse_without_use(fields, pop)
    if not pop.hosts:
        raise fields.wrong("hosts", "is empty")
    fields.done()
    return pop


def _read_ports(fields: Fields, health: str) -> tuple[int, ...]:
    """Those of the health check unless they are given."""
    usual = (_health_port(fields, health),) if health else ()
    given: list[int] = []
    for index, port in enumerate(fields.items("ports", [])):
        if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
            raise fields.wrong(f"ports[{index}]", f"{port!r} is no port")
        given.append(port)
    return tuple(given) or usual


def _health_port(fields: Fields, health: str) -> int:
    try:
        parts = urlsplit(health)
        if parts.hostname and parts.port != 0:
            return parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise fields.wrong("health", f"{health!r}: {error}") from None
    raise fields.wrong("health", f"{health!r} names no host, or port 0")


def _refuse_without_use(fields: Fields, pop: Pop) -> None:
    """A field that changes nothing was meant for something else."""
    if pop.health_name and not pop.health:
        raise fields.wrong("health_name", "is given, but health is not")
    if pop.health_tls != HEALTH_TLS[0] and not pop.health.startswith("https:"):
        raise fields.wrong("health_tls", "is given, but health is not an https URL")


def _read_load_balancer(fields: Fields) -> LoadBalancer:
    driver = fields.text("driver", choices=DRIVERS)
    balancer = LoadBalancer(
        driver=driver,
        fields={
            name: _read_spelled(fields, name, field.pattern, field.same, field.default)
            for name, field in driver_class(driver).fields.items()
        },
        checks=fields.text("checks", CHECKS[0], choices=CHECKS),
    )
    fields.done()
    return balancer


def _read_credentials(fields: Fields) -> str | None:
    """The name of the credentials that the BMCs of a PoP share."""
    if fields.raw("bmc", None) is None:
        return None
    below = fields.inside("bmc")
    credentials: str = below.text("credentials", pattern=NAME)
    below.done()
    return credentials


def _read_bmc(fields: Fields, shared: str | None) -> Bmc | None:
    if fields.raw("bmc", None) is None:
        return None
    below = fields.inside("bmc")
    default = {} if shared is None else {"default": shared}
    bmc = Bmc(
        address=_read_spelled(below, "address", _HTTPS, canonical_url),
        credentials=below.text("credentials", **default, pattern=NAME),
        system=below.text("system", "", pattern=r"[!-~]+"),
        machine=below.text("machine", "", pattern=r"[!-~]+"),
    )
    below.done()
    return bmc


def _read_host(name: str, fields: Fields, credentials: str | None) -> Host:
    host = Host(
        name=name,
        address=_read_address(fields, "address"),
        port=fields.whole("port", 22, minimum=1, maximum=65535),
        rack=fields.text("rack", ""),
        hardware=fields.text("hardware", ""),
        server=fields.text("server", name, pattern=NAME),
        bmc=_read_bmc(fields, credentials),
        server_address=_read_server_address(fields),
    )
    fields.done()
    return host


def _read_address(fields: Fields, name: str) -> str:
    address: str = fields.text(name, pattern=r"[A-Za-z0-9:][A-Za-z0-9.:-]*")
    try:
        canonical(address)
    except ValueError:
        text = f"{address!r} is neither an IP address nor a name"
        raise fields.wrong(name, text) from None
    return address


def _read_spelled(
    fields: Fields,
    name: str,
    pattern: str,
    same: Callable[[str], str],
    usual: str | None = None,
) -> str:
    default = {} if usual is None else {"default": usual}
    text: str = fields.text(name, **default, pattern=pattern)
    try:
        same(text)
    except ValueError as error:
        raise fields.wrong(name, f"{text!r}: {error}") from None
    return text


def _read_server_address(fields: Fields) -> str:
    given = fields.raw("server_address", None)
    return "" if given is None else _read_address(fields, "server_address")


def _refuse_shared(where: str, pops: list[Pop]) -> None:
    """InputError when two hosts, or two PoPs, are one in another spelling."""
    owner: dict[tuple[object, ...], str] = {}
    for pop in pops:
        _own(
            owner, where, f"pops.{pop.name}", pop.name, [("name", pop.name, (pop.name.casefold(),))]
        )
        for host in pop.hosts:
            path = f"pops.{pop.name}.hosts.{host.name}"
            _own(owner, where, path, f"{pop.name}/{host.name}", _identities(pop, host))


def _identities(pop: Pop, host: Host) -> list[tuple[str, str, tuple[object, ...]]]:
    """What no other host may have: field, value, and the key under which two are the same."""
    found: list[tuple[str, str, tuple[object, ...]]] = [
        ("name", host.name, (pop.name, host.name.casefold())),
        ("address", host.address, (canonical(host.address), host.port)),
        ("server", host.server, (pop.load_balancer.place, host.server.casefold())),
    ]
    if host.bmc:
        own = (canonical_url(host.bmc.address), host.bmc.system)
        found.append(("bmc.address", host.bmc.address, own))
    return found


def _own(
    owner: dict[tuple[object, ...], str],
    where: str,
    path: str,
    name: str,
    identities: list[tuple[str, str, tuple[object, ...]]],
) -> None:
    for field, value, parts in identities:
        first = owner.setdefault((field, *parts), name)
        if first != name:
            below = path if field == "name" else f"{path}.{field}"
            raise InputError(where, below, f"{value} is also the {field} of {first}")
