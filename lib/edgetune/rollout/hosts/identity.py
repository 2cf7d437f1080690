# SPDX-License-Identifier: Apache-2.0
"""Whether inventory, load balancer and SSH mean one machine by the name of a host.

A drain is asked of the load balancer by the name of a server, everything else of the machine that
answers SSH at the host's address. Were these two machines, one would be changed and rebooted while
it serves. So the load balancer's address of the server has to be one of that machine's own
interfaces, and of no other machine's. The inventory has to vouch for what cannot be compared. A
host that steers its own traffic is drained and changed over one SSH, and so is one machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgetune.base.addresses import canonical
from edgetune.base.documents.host import HostFacts
from edgetune.base.documents.plan import Proof
from edgetune.base.names import listed
from edgetune.net.bmc.identity import uuid_of
from edgetune.net.traffic import Server
from edgetune.site.inventory import UNTOLD, Host, Pop

BY_INTERFACE, BY_INVENTORY, BY_HOST = "interface", "inventory", "host"


def prove_machines(
    pop: Pop,
    hosts: Sequence[Host],
    servers: Mapping[str, Server],
    facts: Mapping[str, HostFacts],
) -> tuple[dict[str, Proof], dict[str, str]]:
    """By host the proof that it is one machine, and by host what speaks against it."""
    proofs, problems = {}, _answering_twice(facts)
    owners = _owners(facts)
    for host in hosts:
        server = servers[host.server]
        address = _canonical(server.address)
        problem = _unchecked(pop, host, server) or _mismatch(host, server, owners, facts)
        if problem:
            problems.setdefault(host.name, problem)
        by = BY_INTERFACE if owners.get(address) == [host.name] else BY_INVENTORY
        by = BY_HOST if server.told_by_host else by
        proofs[host.name] = Proof(address, by, uuid_of(vars(facts[host.name].machine)))
    return proofs, {**_unprovable(pop, proofs), **_sent_twice(hosts, servers, proofs), **problems}


def is_another(
    host: Host,
    server: Server,
    planned: Proof | None,
    facts: HostFacts,
    way_back: bool,
) -> str:
    """Why a host is not the machine that the plan saw, or "".

    ``planned`` is its proof in the plan, None in plans of version 0.6. On the ``way_back`` only
    what speaks against a host counts: a host that lost an address is still to be restored.
    """
    address, own = _canonical(server.address), _own_addresses(facts)
    uuid, known = uuid_of(vars(facts.machine)), planned.uuid if planned else ""
    if known and uuid != known and not (way_back and not uuid):
        return f"{host.address} leads to machine {uuid or 'without UUID'}, not {known}"
    by_interface = planned is None or planned.proven_by == BY_INTERFACE
    if by_interface and address in own:
        # Also where the load balancer has another address of it than when the plan was made.
        return ""
    if way_back and (known or not planned or facts.addresses is None):
        return ""
    expected = planned.address if planned else address
    if address != expected:
        return (
            f"the load balancer sends requests for {host.server} to {address or 'nowhere'}, "
            f"and to {expected or 'nowhere'} when the plan was made"
        )
    return _foreign(host, address, own) if by_interface and not host.server_address else ""


def _mismatch(
    host: Host,
    server: Server,
    owners: Mapping[str, Sequence[str]],
    facts: Mapping[str, HostFacts],
) -> str:
    """What speaks against this host being behind its server, or ""."""
    address = _canonical(server.address)
    if server.told_by_host:
        return ""
    if server.addresses:
        told = ", ".join(f"{part} to {where}" for part, where in server.addresses.items())
        return f"the load balancers send requests for {host.server} to several addresses: {told}"
    vouched = "" if host.server_address == UNTOLD else _canonical(host.server_address)
    if host.server_address and vouched != address:
        return (
            f"server_address: is {host.server_address}, and the load balancer sends its requests "
            f"to {address or 'an address that it does not tell'}"
        )
    others = [name for name in owners.get(address, ()) if name != host.name]
    own = _own_addresses(facts[host.name])
    if len(others) == 1 and address not in own:
        return (
            f"the load balancer sends requests for {host.server} to {address}, which {others[0]} "
            f"has; {host.address}, asked over SSH, has {_listed(own)}"
        )
    if host.server_address:
        return ""
    if not address:
        return (
            f"the load balancer tells no address of {host.server}; server_address: {UNTOLD} "
            "in the inventory vouches that it is this host"
        )
    if others:
        return (
            f"the load balancer sends requests for {host.server} to {address}, which "
            f"{_listed(others)} have as well; server_address: {address} in the inventory "
            "vouches that it is this host"
        )
    return "" if address in own else _foreign(host, address, own)


def _foreign(host: Host, address: str, own: Sequence[str]) -> str:
    return (
        f"the load balancer sends requests for {host.server} to {address}; {host.address}, asked "
        f"over SSH, has {_listed(own)}; behind NAT, server_address: {address} in the inventory "
        "vouches that it is this host"
    )


def _unchecked(pop: Pop, host: Host, server: Server) -> str:
    if server.checked or pop.load_balancer.checks == "none":
        return ""
    return (
        f"the load balancer does not check the health of {host.server}; load_balancer.checks: none "
        "in the inventory goes on without"
    )


def _unprovable(pop: Pop, proofs: Mapping[str, Proof]) -> dict[str, str]:
    """Nothing shows that a host is the right machine, neither its address nor a check."""
    if pop.load_balancer.checks != "none":
        return {}
    text = "its address cannot be compared, and load_balancer.checks is none: nothing can prove it"
    return {name: text for name, proof in proofs.items() if proof.proven_by == BY_INVENTORY}


def _sent_twice(
    hosts: Sequence[Host],
    servers: Mapping[str, Server],
    proofs: Mapping[str, Proof],
) -> dict[str, str]:
    """Two servers of one address and port are one machine, whatever the inventory says."""
    first: dict[tuple[str, int], str] = {}
    found = {}
    for host in hosts:
        address, port = proofs[host.name].address, servers[host.server].port
        owner = first.setdefault((address, port), host.server) if address else host.server
        if owner != host.server:
            text = f"the load balancer sends requests for {host.server} and {owner} to {address}"
            found[host.name] = f"{text}, port {port}"
    return found


def _answering_twice(facts: Mapping[str, HostFacts]) -> dict[str, str]:
    """Hosts of one boot_id are one machine."""
    by_boot: dict[str, str] = {}
    found = {}
    for name, known in facts.items():
        first = by_boot.setdefault(known.boot_id, name) if known.boot_id else name
        if first != name:
            found[name] = f"is the machine that answers for {first}, too: both have one boot_id"
    return found


def _owners(facts: Mapping[str, HostFacts]) -> dict[str, list[str]]:
    """By address the hosts that have it: anycast addresses, and 127.0.0.1, have many."""
    owners: dict[str, list[str]] = {}
    for name, known in facts.items():
        for address in _own_addresses(known):
            owners.setdefault(address, []).append(name)
    return owners


def _own_addresses(facts: HostFacts) -> list[str]:
    return list(dict.fromkeys(_canonical(row.address) for row in facts.addresses or []))


def _canonical(address: str) -> str:
    try:
        return canonical(address)
    except ValueError:
        return address


def _listed(addresses: Sequence[str]) -> str:
    usual = [name for name in addresses if not name.startswith(("127.", "::1", "fe80:"))]
    return listed(usual or addresses) if addresses else "no address that it tells"
