# SPDX-License-Identifier: Apache-2.0
"""How addresses, networks and types of keys are spelled.

Each address in one way, so that two that mean the same compare as equal; and in labels, as
Prometheus has them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from edgetune.agent.vocabulary.prefixes import LENGTHS, number_of_bytes

KEY_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
)
"""Of SSH keys that hosts may show."""

_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_DEFAULT_PORTS = {"https": 443}
# RFC 3696, section 2: no top-level domain is all digits. inet_aton(3) reads such a name, and 0x...,
# as an IPv4 address, also in octal: 10.0.0.010 is 10.0.0.8 there.
_READ_AS_NUMBER = re.compile(r"(^|\.)(\d+|0[xX][0-9A-Fa-f]*)\.?$")


def canonical(address: str) -> str:
    """An IP address as RFC 5952 writes it, or a name in lower case; ValueError for neither.

    IPv4 inside IPv6 (``::ffff:10.0.0.1``) is the IPv4 address.
    """
    if ":" not in address and not _READ_AS_NUMBER.search(address):
        return address.rstrip(".").lower()
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def canonical_url(url: str) -> str:
    """``SCHEME://HOST:PORT`` in one spelling; ValueError when the host or port is none.

    A path (of ``unix:///PATH``) is left as it is.
    """
    parts = urlsplit(url)
    if not parts.hostname:
        return url
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    return f"{parts.scheme}://{canonical(parts.hostname)}:{port}"


def filled(template: str, values: Mapping[str, str]) -> str:
    """The value of a label: a template such as ``{address}:9100`` with the values of a host.

    An IPv6 address before a port gets its brackets, as Prometheus writes an ``instance`` of it.
    """
    address = values.get("address", "")
    if ":" in address:
        template = template.replace("{address}:", f"[{address}]:")
    return re.sub(rf"\{{({'|'.join(values)})\}}", lambda label: values[label[1]], template)


def jump_parts(jump: str) -> tuple[str, str, int]:
    """User ("" for the usual one), address and port (22 unless given); ValueError for another."""
    match = re.fullmatch(r"(?:([^@\s]+)@)?(\[[^\]]+\]|[^:@\[\]\s]+)(?::(\d{1,5}))?", jump)
    if match is None or not 1 <= int(match[3] or 22) <= 65535:
        raise ValueError("write it like admin@10.0.0.7:22 or [2001:db8::7]:22")
    address = match[2].strip("[]")
    canonical(address)
    return match[1] or "", address, int(match[3] or 22)


def span_of_network(network: str) -> tuple[int, int]:
    """The first and the last prefix that a network overlaps, as numbers; ValueError for a text that
    is no network, or has host bits set."""
    parsed = ipaddress.ip_network(network)
    if parsed.version == 6 and parsed.overlaps(_MAPPED):
        raise ValueError(f"{network} holds IPv4 inside IPv6; write networks of IPv4, and others")
    first = number_of_bytes(parsed.network_address.packed)
    longer = parsed.prefixlen >= LENGTHS[parsed.version]
    return first, first if longer else number_of_bytes(parsed.broadcast_address.packed)
