# SPDX-License-Identifier: Apache-2.0
"""PoPs, their hosts and load balancers, and the port to whatever they are written down in."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

from edgetune.base.dataclass import dataclass
from edgetune.base.errors import InputError

if TYPE_CHECKING:
    from edgetune.base.documents.congestion import Terms, Thresholds

CHECKS = ("marker", "none")
"""Whether a load balancer's health check fails while a host holds the not-ready marker."""

UNTOLD = "none"
"""What ``server_address`` says of a server whose address the load balancer does not tell."""

HEALTH_TLS = ("verified", "insecure")
"""Whether the certificate of an https health check is verified against the host's CA store."""


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
    ``jump`` is ``[USER@]ADDRESS[:PORT]`` of the host that SSH goes through, "" for none.
    ``host_keys`` are the only SSH keys it may show, ``TYPE BASE64`` each, or none for those that
    known_hosts has for ``host_key_alias``, or for the address.
    """

    name: str
    address: str
    port: int
    rack: str
    hardware: str
    server: str
    bmc: Bmc | None = None
    server_address: str = ""
    jump: str = ""
    host_keys: tuple[str, ...] = ()
    host_key_alias: str = ""


@dataclass(frozen=True)
class LoadBalancer:
    """Where a PoP's traffic is steered: its ``driver``, with the values of its ``fields``.

    ``checks`` is one of CHECKS.
    """

    driver: str
    fields: Mapping[str, str]
    checks: str = CHECKS[0]


@dataclass(frozen=True)
class Metrics:
    """What samples a PoP's hosts: one of ``metrics.sources``, with the values of its ``fields``."""

    source: str = "hosts"
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Congestion:
    """How prefixes of a PoP's clients get another congestion control.

    ``source`` is one of ``congestion.sources``, and ``applier`` one of ``congestion.appliers``,
    each with the values of its fields.
    """

    source: str
    source_fields: Mapping[str, str]
    applier: str
    applier_fields: Mapping[str, str]
    terms: Terms
    thresholds: Thresholds


@dataclass(frozen=True)
class Pop:
    """A context. ``min_in_service`` is the share of hosts in service that we may never go below.

    ``health`` is the URL that each host asks of its own service, by the name ``health_name`` (""
    for the URL's), and ``health_tls`` one of HEALTH_TLS.
    ``ports`` are those on which its hosts serve; a drained host has no connection to them.
    Campaigns select PoPs by ``region`` and ``labels``.
    ``backs_up`` names the PoPs that take its traffic, or whose traffic it takes, whichever of both
    says so. Each tuple of ``fails_together`` names hosts that one switch, rack or feed carries.
    ``metrics`` samples its hosts; ``more_metrics`` add gauges that those before do not have.
    ``congestion`` is None where the congestion control of clients is left alone.
    """

    name: str
    min_in_service: float
    health: str
    ports: tuple[int, ...]
    reboot_time: float
    load_balancer: LoadBalancer
    hosts: tuple[Host, ...]
    region: str = ""
    labels: tuple[str, ...] = ()
    health_name: str = ""
    health_tls: str = HEALTH_TLS[0]
    metrics: Metrics = Metrics()
    more_metrics: tuple[Metrics, ...] = ()
    congestion: Congestion | None = None
    backs_up: tuple[str, ...] = ()
    fails_together: tuple[tuple[str, ...], ...] = ()

    @property
    def views(self) -> list[Pop]:
        """The PoP as each of its sources sees it: ``metrics`` is that source alone."""
        every = (self.metrics, *self.more_metrics)
        return [replace(self, metrics=source, more_metrics=()) for source in every]

    @property
    def must_serve(self) -> int:
        """How many hosts have to stay in service, whatever we do."""
        return math.ceil(self.min_in_service * len(self.hosts) - 1e-9)

    def host(self, name: str) -> Host:
        """The host of that name; InputError if the PoP has none."""
        if name not in self._by_name:
            raise InputError("inventory", f"pops.{self.name}.hosts", f"has no host {name!r}")
        return self._by_name[name]

    def takes_too_many(self, out: Collection[str], names: Collection[str]) -> str:
        """The group of ``fails_together`` that would be out wholly without ``names``, too, while
        these are of another one as well, or another one is ``out`` wholly; nothing where that is
        not so.

        A PoP is built to do without one of them.
        """
        if not self.fails_together:
            return ""
        gone = {*out, *names}
        whole = [group for group in self.fails_together if gone >= {*group}]
        new = [group for group in whole if not {*group} <= {*out}]
        touched = [group for group in self.fails_together if {*group} & {*names}]
        beside = [group for group in self.fails_together if group in whole or group in touched]
        return ", ".join(new[0]) if new and len(beside) > 1 else ""

    @functools.cached_property
    def _by_name(self) -> dict[str, Host]:
        return {host.name: host for host in self.hosts}


class Inventory(Protocol):
    """What the rest of edgetune asks of an inventory, whatever it is kept in.

    A source is made with the path of the option ``inventory``. That is the inventory itself, or for
    a service a file that says where the service is, and what the service does not know of a PoP.

    It has read all PoPs when it was made, and tells the same ones from then on. It raises
    InputError where it could not: ``SOURCE: FIELD: what is wrong``, such as
    ``pops.lab1.min_in_service``. So a part of an answer is no inventory: with fewer hosts fewer
    would have to stay in service.
    No two PoPs and no two hosts are one in another spelling.
    """

    is_kept: ClassVar[bool] = False
    """Whether reading it is too much for each step of a rollout: it is read for plans, and the
    answer is kept in the records."""
    file: str = ""
    """Digest of the file that all of it was read from; empty where that is no single file."""

    @abstractmethod
    def pop_names(self) -> list[str]:
        """Names of all PoPs, in their order."""

    @abstractmethod
    def pop(self, name: str) -> Pop:
        """One PoP; InputError names those there are."""

    @abstractmethod
    def entry(self, name: str) -> Mapping[str, object]:
        """What that PoP was read from: its fields, as in a YAML file; InputError as ``pop``."""
