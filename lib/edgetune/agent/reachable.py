# SPDX-License-Identifier: Apache-2.0
"""Whether connections from this host reach others as they did before a change of the network."""

import os
import re
import socket
import struct
from ipaddress import IPv6Address, ip_address
from typing import Dict, Iterator, List

from edgetune.agent.connections import CONNECTIONS, REFUSED_APART, Place, unanswered
from edgetune.agent.host import Host
from edgetune.agent.journal import Journal
from edgetune.agent.protocol import Failed
from edgetune.agent.vocabulary.kinds import KINDS

# Nobody need listen there: a refusal is an answer.
DISCARD = 9
CLIENT, GATEWAY = "client", "gateway"
# Of include/uapi/linux/route.h.
RTF_GATEWAY = 2

RIGHT_NOW = 2.0
"""How long a peer may take to answer, in seconds; many never do."""

LINK_UP = 20.0
"""The same just after a change: it may have taken the link down, which needs its time."""


def changes_network(journal: Journal) -> bool:
    """Whether it changes something that can cut the host off."""
    settings = [entry.setting for entry in journal.entries if entry.runtime or entry.stored]
    return any(KINDS[setting.kind].can_cut_off(setting.target) for setting in settings)


def answering(host: Host) -> Dict[str, str]:
    """The peers that answer each of many connections, and what each is.

    They are the other end of the SSH connection, and the default gateways. A firewall may keep
    any of them silent, which is nothing to be compared with.
    """
    peers = {**dict.fromkeys(_gateways(host), GATEWAY), **dict.fromkeys(_clients(host), CLIENT)}
    lost = unanswered([_place(peer) for peer in peers], RIGHT_NOW, REFUSED_APART)
    return {peer: role for peer, role in peers.items() if not lost[_place(peer)]}


def lost_connections(host: Host, journal: Journal, seconds: float) -> Dict[str, int]:
    """By peer that answered all connections before a change, how many it does not answer now.

    An SSH client that is no longer ours is not asked: another action runner may have taken over.
    """
    clients = _clients(host)
    asked = [peer for peer, role in journal.answering.items() if role != CLIENT or peer in clients]
    lost = unanswered([_place(peer) for peer in asked], seconds, REFUSED_APART)
    return {peer: lost[_place(peer)] for peer in asked if lost[_place(peer)]}


def refuse_lost(host: Host, journal: Journal) -> None:
    """Failed when connections are lost that were answered before the change."""
    lost = lost_connections(host, journal, LINK_UP)
    if lost:
        each = [f"{count} of {CONNECTIONS} to {peer}" for peer, count in lost.items()]
        raise Failed(f"connections get no answer that did before: {', '.join(each)}")


def _place(peer: str) -> Place:
    return (peer, DISCARD)


def _clients(host: Host) -> List[str]:
    """The other end of the SSH connection over which we were sent; none elsewhere."""
    peer = os.environ.get("SSH_CONNECTION", "").split(" ")[0]
    try:
        # Below a private root nothing of the machine's own is talked to.
        near = host.root == "/" or ip_address(peer).is_loopback
    except ValueError:
        return []
    return [peer] if peer and near else []


def _gateways(host: Host) -> List[str]:
    """Those of the default routes, as the kernel has them in /proc/net."""
    if host.system == "freebsd":
        from edgetune.agent.freebsd import readings

        found = list(readings.gateways(host))
    else:
        found = [*_inet_gateways(host), *_inet6_gateways(host)]
    return list(dict.fromkeys(found)) if host.root == "/" else []


def _inet_gateways(host: Host) -> Iterator[str]:
    for line in host.text("/proc/net/route").splitlines()[1:]:
        _, network, gateway, flags, _, _, _, mask, *_ = line.split()
        if network == mask == "00000000" and int(flags, 16) & RTF_GATEWAY:
            # In the byte order of the host.
            yield socket.inet_ntoa(struct.pack("=I", int(gateway, 16)))


def _inet6_gateways(host: Host) -> Iterator[str]:
    for line in host.text("/proc/net/ipv6_route").splitlines():
        network, length, _, _, gateway, _, _, _, flags, interface = line.split()
        if not re.fullmatch("0*", network + length) or not int(flags, 16) & RTF_GATEWAY:
            continue
        address = IPv6Address(int(gateway, 16))
        yield f"{address}%{interface}" if address.is_link_local else str(address)
