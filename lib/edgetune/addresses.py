# SPDX-License-Identifier: Apache-2.0
"""How addresses are spelled: each in one way, so that two that mean the same compare as equal; and
in labels, as Prometheus has them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

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
    return re.sub(rf"\{{({'|'.join(values)})\}}", lambda found: values[found[1]], template)
