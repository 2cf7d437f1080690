# SPDX-License-Identifier: Apache-2.0
"""Which hosts of a PoP get requests, by the load balancer's word."""

from __future__ import annotations

from collections.abc import Mapping

from edgetune.inventory import Pop
from edgetune.traffic import DrainDriver, Server

ADMITTED = "ready"
"""How records and messages call a server that is not withdrawn; else the load balancer's word."""


def hosts_in_service(pop: Pop, servers: Mapping[str, Server]) -> set[str]:
    """Names of the hosts that get new requests."""
    return {host.name for host in pop.hosts if serves(servers.get(host.server))}


def serves(server: Server | None) -> bool:
    """Whether a server, if there is one, gets new requests."""
    return server is not None and server.is_serving


def needs_room(pop: Pop, servers: Mapping[str, Server]) -> set[str]:
    """Names of the hosts that some load balancer sends requests: others get these without them."""
    known = {host.name: servers.get(host.server) for host in pop.hosts}
    return {name for name, server in known.items() if server is not None and server.gets_requests}


def was_admitted(before: str | None) -> bool:
    """Whether a server whose state was ``before`` got requests, be it from one load balancer."""
    return ADMITTED in (before or "").split()


def state_of(server: Server) -> str:
    """ADMITTED, or how the server was withdrawn; ``put_back`` takes it."""
    return server.withdrawn or ADMITTED


def put_back(driver: DrainDriver, server: str, before: str | None) -> None:
    """Give a server back the state that it had ``before``; without one, it is admitted."""
    driver.restore(server, "" if before in (None, ADMITTED) else before)


def shown(server: Server | None) -> str:
    """A server in words: "drain in the load balancer, with 3 sessions"."""
    if server is None:
        return "the load balancer does not tell"
    if server.unknown:
        return f"nobody can tell how it stands: {server.unknown}"
    sessions = "unknown" if server.sessions is None else server.sessions
    return f"{state_of(server)} in the load balancer, with {sessions} sessions"


def leaving(pop: Pop, servers: Mapping[str, Server]) -> set[str]:
    """Names of the hosts that are withdrawn and may still get requests."""
    known = {host.name: servers.get(host.server) for host in pop.hosts}
    return {name for name, server in known.items() if server is not None and server.leaving}
