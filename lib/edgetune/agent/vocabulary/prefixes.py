# SPDX-License-Identifier: Apache-2.0
"""Prefixes of clients, a /24 of IPv4 or a /56 of IPv6; what is known of a connection to one.

A prefix is a text, or one number: that of the network without its host bits; those of IPv6 have
``V6`` added. So two prefixes of one length are the same if their numbers are, and no two of them
overlap otherwise.
"""

import ipaddress

LENGTHS = {4: 24, 6: 56}
"""By version of IP: clients of one site (RFC 6177), and of one announced route (RFC 7454)."""

V6 = 1 << 56
END = V6 << 1
"""No number of a prefix is as large."""

_MAPPED = b"\0" * 10 + b"\xff\xff"


def number_of_bytes(address: bytes) -> int:
    """The prefix of an address in network order; ValueError unless it has 4 or 16 bytes.

    IPv4 inside IPv6 (``::ffff:192.0.2.1``) is the IPv4 address.
    """
    if len(address) == 16 and address.startswith(_MAPPED):
        address = address[12:]
    if len(address) == 4:
        return int.from_bytes(address[:3], "big")
    if len(address) == 16:
        return V6 + int.from_bytes(address[:7], "big")
    raise ValueError("an address has 4 or 16 bytes")


def number_of_address(text: str) -> int:
    """The prefix of an address such as ``192.0.2.1`` or ``2001:db8::1%eth0``; ValueError."""
    import socket

    host = text.partition("%")[0]
    try:
        return number_of_bytes(
            socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
        )
    except OSError:
        raise ValueError("no address") from None


def text_of(number: int) -> str:
    """Such as ``192.0.2.0/24`` or ``2001:db8:0:100::/56``; ValueError for no prefix's number."""
    if V6 <= number < END:
        return f"{ipaddress.IPv6Address((number - V6) << 72)}/56"
    if 0 <= number < 1 << 24:
        return f"{ipaddress.IPv4Address(number << 8)}/24"
    raise ValueError("no prefix has this number")


def number_of(text: str) -> int:
    """The number of a prefix in the one spelling that ``text_of`` has; ValueError for others."""
    network = ipaddress.ip_network(text)
    if network.prefixlen != LENGTHS[network.version]:
        raise ValueError(f"it is no /{LENGTHS[network.version]}")
    number = number_of_bytes(network.network_address.packed)
    if text_of(number) != text:
        raise ValueError(f"it is written {text_of(number)}")
    return number


MEASURED = (
    "delivery_rate",
    "goodput",
    "rtt_ms",
    "min_rtt_ms",
    "bytes_acked",
    "bytes_sent",
    "bytes_retransmitted",
)
"""How fast it delivered last, in bytes a second; how many bytes a second were acknowledged while
some were on their way; its round-trip times; and bytes of its whole life.

Of these the kernel always tells the first. Goodput is tcp_info's ``bytes_acked`` over
``busy_time``: what the application does not send yet makes it no smaller.
"""
