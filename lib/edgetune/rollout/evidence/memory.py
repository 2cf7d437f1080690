# SPDX-License-Identifier: Apache-2.0
"""How much memory the samples of a fleet take in Redis, at most.

A sweep of a PoP is one document of columns (see ``table``), and one member of a sorted set.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

# A float of 8 bytes, in base64.
_READING = 8 * 4 / 3
# Quotes, comma and space around a text in JSON, and the 36 characters of a boot's id.
_AROUND, _BOOT = 4, 36
# Of a document: braces, the names of its fields, the time; of a column: name, quotes, padding.
_DOCUMENT, _COLUMN = 120, 8
# Of a member of a sorted set: its entry in the skip list and in the hash table, and the header of
# its string. Allocators of Redis round sizes up by a quarter at most (jemalloc's size classes).
_MEMBER, _ROUNDED = 160, 1.25


def sweep_bytes(hosts: Sequence[str], readings: Collection[str]) -> int:
    """Bytes that one sweep of these hosts takes, with each of these readings."""
    names = sum(len(host) + _AROUND + _BOOT + _AROUND for host in hosts)
    columns = sum(math.ceil(len(hosts) * _READING) + len(name) + _COLUMN for name in readings)
    uptime = math.ceil(len(hosts) * _READING)
    return math.ceil((_DOCUMENT + names + columns + uptime) * _ROUNDED + _MEMBER)


def retained_bytes(
    hosts: Sequence[str], readings: Collection[str], retention: float, interval: float
) -> int:
    """Bytes of all sweeps of ``retention`` seconds, one each ``interval`` seconds."""
    return sweep_bytes(hosts, readings) * math.ceil(retention / interval + 1)
