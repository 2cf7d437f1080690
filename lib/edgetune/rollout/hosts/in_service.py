# SPDX-License-Identifier: Apache-2.0
"""Which hosts of a PoP get requests, by the load balancer's word; and what makes hosts say "not
ready" themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from edgetune.net.result import HostResult
from edgetune.net.traffic import DrainDriver, Server
from edgetune.rollout.ownership.lease import Rollout
from edgetune.site.inventory import Pop

ADMITTED = "ready"
"""How records and messages call a server that is not withdrawn; else the load balancer's word."""
# Stands before the state of a server that got no requests, although nobody had withdrawn it.
_IDLE = "idle, "


def hosts_in_service(pop: Pop, servers: Mapping[str, Server]) -> set[str]:
    """Names of the hosts that get new requests."""
    return {name for name, server in _known(pop, servers) if server.is_serving}


def needs_room(pop: Pop, servers: Mapping[str, Server]) -> set[str]:
    """Names of the hosts that some load balancer sends requests: others get these without them."""
    return {name for name, server in _known(pop, servers) if server.gets_requests}


def was_admitted(before: str | None) -> bool:
    """Whether a server whose state was ``before`` got requests, be it from one load balancer."""
    return ADMITTED in _words(before)


def was_serving(before: str | None) -> bool:
    """Whether every load balancer sent it requests, or would have but for its failing check."""
    return {*_words(before)} == {ADMITTED}


def _words(before: str | None) -> list[str]:
    """By load balancer; records of 0.10 have the words alone, newer ones "ready:100%", too."""
    return [each.split(" at ")[0].partition(":")[0] for each in (before or "").split(", ")]


def state_of(server: Server) -> str:
    """How a server stands, for records; ``put_back`` takes it."""
    state = server.state or server.withdrawn or ADMITTED
    gets_none = bool(server.idle or server.withdrawn)
    return f"{_IDLE}{state}" if gets_none and was_admitted(state) else state


def put_back(driver: DrainDriver, server: str, before: str | None) -> None:
    """Give a server back the state that it had ``before``; without one, it is admitted."""
    state = (before or ADMITTED).removeprefix(_IDLE)
    driver.restore(server, "" if state == ADMITTED else state)


def shown(server: Server | None) -> str:
    """A server in words: "drain in the load balancer, with 3 sessions"."""
    if server is None:
        return "the load balancer does not tell"
    if server.unknown:
        return f"nobody can tell how it stands: {server.unknown}"
    sessions = "unknown" if server.sessions is None else server.sessions
    idle = f" ({server.idle})" if server.idle and not server.withdrawn else ""
    return f"{server.withdrawn or ADMITTED}{idle} in the load balancer, with {sessions} sessions"


def why_out(server: Server) -> str:
    """Why a known server gets no requests, in words: "drain", "ready, and its check fails"."""
    word = server.withdrawn or ADMITTED
    if server.withdrawn and server.overridden_by:
        word += f", by hand or by {server.overridden_by}"
    if not server.up:
        return f"{word}, and its check fails" + (f" ({server.idle})" if server.idle else "")
    idle = "" if server.withdrawn else server.idle
    return f"{word}, and sends it no requests: {idle}" if idle else word


def leaving(pop: Pop, servers: Mapping[str, Server]) -> set[str]:
    """Names of the hosts that are withdrawn and may still get requests."""
    return {name for name, server in _known(pop, servers) if server.leaving}


def _known(pop: Pop, servers: Mapping[str, Server]) -> Iterator[tuple[str, Server]]:
    """Hosts whose server is there."""
    return ((own.name, servers[own.server]) for own in pop.hosts if own.server in servers)


def set_ready(
    opened: Rollout,
    names: Sequence[str],
    ready: bool,
    addresses: Mapping[str, str] | None = None,
    patient: bool = True,
) -> Mapping[str, HostResult]:
    """Let the hosts' own health answer, or answer "not ready"; by host, what it said.

    A machine that does not have its address of ``addresses`` is left alone.
    """
    request = {"rollout": opened.head.id, "ready": ready, "ports": list(opened.pop.ports)}
    expected = addresses or {}
    return opened.ask_hosts(
        names,
        "ready",
        lambda host: {**request, "address": expected.get(host.name) or None},
        patient=patient,
    )
