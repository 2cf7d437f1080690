# SPDX-License-Identifier: Apache-2.0
"""Which hosts of a PoP get requests, by the load balancer's word."""

from __future__ import annotations

from collections.abc import Mapping

from edgetune.inventory import Pop
from edgetune.traffic import Server

# What a server of ours is set to once it carries nothing.
OUT = "maint"


def hosts_in_service(pop: Pop, servers: Mapping[str, Server]) -> set[str]:
    """Names of the hosts that get new requests."""
    return {host.name for host in pop.hosts if serves(servers.get(host.server))}


def serves(server: Server | None) -> bool:
    """Whether a server, if there is one, gets new requests."""
    return server is not None and server.in_service
