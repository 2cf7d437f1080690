# SPDX-License-Identifier: Apache-2.0
"""Reads the entry of a PoP and of its hosts, whatever the inventory is kept in."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, Callable
from urllib.parse import urlsplit

from edgetune.base.addresses import KEY_TYPES, canonical, canonical_url, jump_parts
from edgetune.base.errors import InputError
from edgetune.base.fields import Field, Fields, near_or_all
from edgetune.base.names import NAME
from edgetune.base.sanitize import Pattern
from edgetune.net.metrics.sources import SOURCES
from edgetune.net.traffic import DRIVERS, is_on_hosts, places
from edgetune.site.inventory import (
    CHECKS,
    HEALTH_TLS,
    Bmc,
    Host,
    Inventory,
    LoadBalancer,
    Metrics,
    Pop,
)

_HEALTH = Pattern(
    r"https?://[A-Za-z0-9.:\[\]-]+([/?][!-~]*)?", "write it like http://127.0.0.1:80/health"
)
_DNS_NAME = Pattern(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", "a name as DNS has it")
_HTTPS = Pattern(r"https://[A-Za-z0-9.:\[\]-]+", "write it like https://10.0.0.7")
_VISIBLE = Pattern(r"[!-~]+", "characters of ASCII, without spaces")
_ADDRESS = Pattern(r"[A-Za-z0-9:][A-Za-z0-9.:-]*", "an IP address or a name of a host")

Place = Callable[[str, str], "tuple[str, str]"]
"""Gives the source and the field where those of an entry were written."""


class WholeInventory(Inventory):
    """An inventory of which all PoPs have been read; ``where`` names its source in errors."""

    def __init__(self, where: str, pops: object, place: Place | None = None) -> None:
        """``pops`` is a mapping of entries by the name of the PoP, as in the YAML file.

        ``place`` says where a field of one was written, if it was not there.
        """
        self._where, self._entries = where, pops
        try:
            top = Fields(pops, where, "pops")
            self._pops = {name: _read_pop(name, fields) for name, fields in top.named(NAME)}
            _refuse_shared(where, list(self._pops.values()))
            self._twins = _twins(where, self._pops)
        except InputError as error:
            if place is None or error.field is None:
                raise
            raise InputError(*place(error.where, error.field), error.problem) from None
        for name, twins in self._twins.items():
            self._pops[name] = replace(self._pops[name], backs_up=twins)

    def pop_names(self) -> list[str]:
        return list(self._pops)

    def pop(self, name: str) -> Pop:
        if name not in self._pops:
            problem = f"there is no PoP {name!r}{near_or_all(name, sorted(self._pops))}"
            raise InputError(self._where, "pop", problem)
        return self._pops[name]

    def entry(self, name: str) -> Mapping[str, object]:
        self.pop(name)
        entries: Any = self._entries
        # What another PoP says of it, too: it is kept, and read of single PoPs from then on.
        twins = {"backs_up": [*self._twins[name]]} if name in self._twins else {}
        return {**entries[name], **twins}


def read_pop(where: str, name: str, entry: object) -> Pop:
    """A PoP of its entry; InputError names ``where`` that was, and the field."""
    return _read_pop(name, Fields(entry, where))


def _read_pop(name: str, fields: Fields) -> Pop:
    hosts = fields.inside("hosts")
    health = fields.text("health", "", pattern=_HEALTH)
    credentials = _read_credentials(fields)
    metrics, *more_metrics = _read_all_metrics(fields)
    pop = Pop(
        name=name,
        min_in_service=_read_min_in_service(fields),
        health=health,
        ports=_read_ports(fields, health),
        reboot_time=fields.duration("reboot_time", 300.0, minimum=0),
        load_balancer=_read_load_balancer(fields.inside("load_balancer")),
        hosts=tuple(_read_host(host, below, credentials) for host, below in hosts.named(NAME)),
        region=fields.text("region", "", pattern=NAME),
        labels=fields.texts("labels", []),
        health_name=fields.text("health_name", "", pattern=_DNS_NAME),
        health_tls=fields.text("health_tls", HEALTH_TLS[0], choices=HEALTH_TLS),
        metrics=metrics,
        more_metrics=tuple(more_metrics),
        congestion=_read_wing(fields, "congestion"),
        backs_up=fields.texts("backs_up", []),
        fails_together=_read_fails_together(fields),
    )
    _refuse_without_use(fields, pop)
    if not pop.hosts:
        raise fields.wrong("hosts", "is empty")
    fields.done()
    return pop


def _read_fails_together(fields: Fields) -> tuple[tuple[str, ...], ...]:
    """Each group by names of hosts, or of racks for all hosts of these; ``racks`` is each rack."""
    hosts, racks = _hosts_and_racks(fields)
    if fields.raw("fails_together", []) == "racks":
        if not racks:
            raise fields.wrong("fails_together", "is racks, but no host names its rack")
        return tuple(tuple(names) for names in racks.values() if len(names) > 1)
    group_of: dict[str, int] = {}
    for index, group in enumerate(fields.items("fails_together", [])):
        field = f"fails_together[{index}]"
        if not isinstance(group, (list, tuple)):
            raise fields.wrong(field, "must be a list of hosts or racks")
        for number, word in enumerate(group):
            names = [word] if word in hosts else racks.get(str(word), [])
            if not names:
                problem = f"{word!r} is no host and no rack of the PoP"
                raise fields.wrong(f"{field}[{number}]", problem)
            for name in names:
                if name in group_of:
                    raise fields.wrong(f"{field}[{number}]", f"{name} is in a group already")
                group_of[name] = index
        if list(group_of.values()).count(index) < 2:
            raise fields.wrong(field, "names fewer than two hosts")
    groups = sorted({*group_of.values()})
    return tuple(tuple(host for host in group_of if group_of[host] == index) for index in groups)


def _hosts_and_racks(fields: Fields) -> tuple[list[str], dict[str, list[str]]]:
    """Names of all hosts, and of those of each rack."""
    racks: dict[str, list[str]] = {}
    named = [(name, host.text("rack", "")) for name, host in fields.inside("hosts").named(NAME)]
    for name, rack in named:
        racks.setdefault(rack, []).append(name)
    racks.pop("", None)
    return [name for name, _ in named], racks


def _twins(where: str, pops: Mapping[str, Pop]) -> dict[str, tuple[str, ...]]:
    """By PoP those that back it up, or that it backs up; InputError names one that is none."""
    pairs = set()
    for pop in pops.values():
        for index, name in enumerate(pop.backs_up):
            field = f"pops.{pop.name}.backs_up[{index}]"
            if name == pop.name:
                raise InputError(where, field, "is the PoP itself")
            if name not in pops:
                problem = f"there is no PoP {name!r}{near_or_all(name, sorted(pops))}"
                raise InputError(where, field, problem)
            pairs |= {(pop.name, name), (name, pop.name)}
    return {name: tuple(sorted(n for o, n in pairs if o == name)) for name in {o for o, _ in pairs}}


def _read_min_in_service(fields: Fields) -> float:
    """Called ``floor`` up to 0.10: an inventory that an upgrade refuses stops rollbacks, too."""
    if fields.raw("floor", None) is None:
        return fields.number("min_in_service", 0.7, minimum=0, maximum=1)
    if fields.raw("min_in_service", None) is not None:
        raise fields.wrong("floor", "is the former name of min_in_service, which is there, too")
    share: float = fields.number("floor", minimum=0, maximum=1)
    return share


def _read_ports(fields: Fields, health: str) -> tuple[int, ...]:
    """The ports that are given, else that of the health check."""
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
    if pop.congestion and not pop.ports:
        raise fields.wrong("ports", "is empty, but congestion needs the ports of clients")
    canary = pop.congestion.terms.canary if pop.congestion else ""
    if canary and canary not in {host.name for host in pop.hosts}:
        raise fields.inside("congestion").wrong("canary", f"the PoP has no host {canary!r}")


def _read_load_balancer(fields: Fields) -> LoadBalancer:
    driver = fields.text("driver", choices=DRIVERS)
    balancer = LoadBalancer(
        driver=driver,
        fields=read_own(fields, DRIVERS[driver].fields),
        checks=fields.text("checks", CHECKS[0], choices=CHECKS),
    )
    fields.done()
    for field, problem in DRIVERS[driver].misfits(balancer.fields).items():
        raise fields.wrong(field, problem)
    return balancer


def _read_all_metrics(fields: Fields) -> list[Metrics]:
    """One source, or a list of them."""
    if not isinstance(fields.raw("metrics", {}), list):
        return [_read_metrics(fields.inside("metrics", {}))]
    sources = [*map(_read_metrics, fields.each("metrics"))]
    if not sources:
        raise fields.wrong("metrics", "is an empty list; leave it out to have hosts sampled by SSH")
    return sources


def _read_metrics(fields: Fields) -> Metrics:
    source = fields.text("source", Metrics.source, choices=SOURCES)
    metrics = Metrics(source, read_own(fields, SOURCES[source].fields))
    fields.done()
    return metrics


def _read_wing(fields: Fields, wing: str) -> Any:
    """What a wing makes of its own entry; None without one: the PoP is left alone."""
    if fields.raw(wing, None) is None:
        return None
    try:
        entry = import_module(f"edgetune.wings.{wing}.entry")
    except ModuleNotFoundError as error:
        # A wing that is there, and lacks something else, is broken: that is not the same.
        if not (error.name or "").startswith("edgetune.wings"):
            raise
        raise fields.wrong(wing, "the wing of that name is not installed here") from None
    return entry.read_entry(fields.inside(wing))


def read_own(fields: Fields, declared: Mapping[str, Field]) -> dict[str, str]:
    """The values of the fields that a driver or a metric source ``declared``."""
    return {name: _read_field(fields, name, its) for name, its in declared.items()}


def _read_field(fields: Fields, name: str, its: Field) -> str:
    if not its.several or not isinstance(fields.raw(name, None), (list, tuple)):
        default: dict[str, Any] = {} if its.default is None else {"default": its.default}
        text: str = fields.text(name, **default, pattern=_like(its), check=its.same)
        return text
    given = fields.texts(name, (), pattern=_like(its))
    first: dict[str, int] = {}
    for index, text in enumerate(given):
        try:
            same = first.setdefault(its.same(text), index)
        except ValueError as error:
            raise fields.wrong(f"{name}[{index}]", f"{text!r}: {error}") from None
        if same != index:
            raise fields.wrong(f"{name}[{index}]", f"{text!r} is {name}[{same}] once more")
    return " ".join(given)


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
    default: dict[str, Any] = {} if shared is None else {"default": shared}
    bmc = Bmc(
        address=below.text("address", pattern=_HTTPS, check=canonical_url),
        credentials=below.text("credentials", **default, pattern=NAME),
        system=below.text("system", "", pattern=_VISIBLE),
        machine=below.text("machine", "", pattern=_VISIBLE),
    )
    below.done()
    return bmc


def _read_host(name: str, fields: Fields, credentials: str | None) -> Host:
    given = fields.raw("server_address", None)
    host = Host(
        name=name,
        address=_read_address(fields, "address"),
        port=fields.whole("port", 22, minimum=1, maximum=65535),
        rack=fields.text("rack", ""),
        hardware=fields.text("hardware", ""),
        server=fields.text("server", name, pattern=NAME),
        bmc=_read_bmc(fields, credentials),
        server_address="" if given is None else _read_address(fields, "server_address"),
        jump=fields.text("jump", "", check=lambda jump: jump and jump_parts(jump)),
        host_keys=_read_host_keys(fields),
        host_key_alias=fields.text("host_key_alias", "", pattern=_DNS_NAME),
    )
    fields.done()
    return host


def _read_address(fields: Fields, name: str) -> str:
    address: str = fields.text(name, pattern=_ADDRESS)
    try:
        canonical(address)
    except ValueError:
        text = f"{address!r} is neither an IP address nor a name"
        raise fields.wrong(name, text) from None
    return address


def _read_host_keys(fields: Fields) -> tuple[str, ...]:
    keys: tuple[str, ...] = fields.texts("host_keys", ())
    if fields.raw("host_keys", None) is not None and not keys:
        raise fields.wrong("host_keys", "is an empty list, which no key is on")
    for index, text in enumerate(keys):
        type, _, key = text.partition(" ")
        try:
            blob = base64.b64decode(key, validate=True)
        except ValueError:
            blob = b""
        if type not in KEY_TYPES or not blob.startswith(
            len(type).to_bytes(4, "big") + type.encode()
        ):
            known = ", ".join(KEY_TYPES)
            problem = f"must be TYPE BASE64 as ssh-keyscan prints it, of type {known}"
            raise fields.wrong(f"host_keys[{index}]", problem)
    if keys and fields.raw("host_key_alias", None):
        raise fields.wrong("host_key_alias", "is given, but host_keys says which keys there are")
    return keys


def _like(field: Field) -> Pattern:
    return Pattern(field.pattern, f"write it like {field.example}")


def _refuse_shared(where: str, pops: list[Pop]) -> None:
    """InputError when two hosts, or two PoPs, are one in another spelling."""
    owner: dict[tuple[object, ...], str] = {}
    for pop in pops:
        path = f"pops.{pop.name}"
        own_name: _Identity = ("name", pop.name, (pop.name.casefold(),))
        every = [(path, pop.name, [own_name])]
        every += [
            (f"{path}.hosts.{host.name}", f"{pop.name}/{host.name}", _identities(pop, host))
            for host in pop.hosts
        ]
        for place, name, identities in every:
            for field, value, parts in identities:
                first = owner.setdefault((field, *parts), name)
                if first != name:
                    below = place if field == "name" else f"{place}.{field}"
                    raise InputError(where, below, f"{value} is also the {field} of {first}")


_Identity = tuple[str, str, "tuple[object, ...]"]
"""A field, its value, and the key under which two are the same."""


def _identities(pop: Pop, host: Host) -> list[_Identity]:
    """What no other host may have."""
    identities: list[_Identity] = [
        ("name", host.name, (pop.name, host.name.casefold())),
        ("address", host.address, (canonical(host.address), host.port)),
    ]
    # Hosts that steer themselves share no load balancer with those of another PoP.
    own_pop = (pop.name,) if is_on_hosts(pop.load_balancer.driver) else ()
    for place in places(pop.load_balancer):
        identities.append(("server", host.server, (place, *own_pop, host.server.casefold())))
    if host.bmc:
        system = (canonical_url(host.bmc.address), host.bmc.system)
        identities.append(("bmc.address", host.bmc.address, system))
    return identities
