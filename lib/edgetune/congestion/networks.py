# SPDX-License-Identifier: Apache-2.0
"""Networks as people write them, and the prefixes of clients in them."""

from __future__ import annotations

from ipaddress import IPv6Network, ip_network

from edgetune.vocabulary.prefixes import LENGTHS, number_of_bytes

_MAPPED = IPv6Network("::ffff:0:0/96")


def span_of_network(network: str) -> tuple[int, int]:
    """The first and the last prefix that a network overlaps, as numbers; ValueError for a text that
    is no network, or has host bits set."""
    own = ip_network(network)
    if own.version == 6 and own.overlaps(_MAPPED):
        raise ValueError(f"{network} holds IPv4 inside IPv6; write networks of IPv4, and others")
    first = number_of_bytes(own.network_address.packed)
    longer = own.prefixlen >= LENGTHS[own.version]
    return first, first if longer else number_of_bytes(own.broadcast_address.packed)
