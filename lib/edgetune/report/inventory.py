# SPDX-License-Identifier: Apache-2.0
"""How an inventory differs from what was kept of it, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgetune.base.documents.inventory import PopChange
from edgetune.base.names import hosts_text, listed


def changes_text(changes: Sequence[PopChange]) -> str:
    """Some lines for each PoP that differs."""
    return "\n".join(line for change in changes for line in _lines(change))


def _lines(change: PopChange) -> Iterator[str]:
    yield change.pop
    if change.removed:
        yield f"  - {len(change.removed)} gone: {hosts_text(change.removed)}"
    if change.added:
        yield f"  + {len(change.added)} new: {hosts_text(change.added)}"
    by_fields: dict[tuple[str, ...], list[str]] = {}
    for host, fields in change.changed.items():
        by_fields.setdefault(tuple(fields), []).append(host)
    for names, hosts in by_fields.items():
        yield f"  ~ {listed(names)} of {hosts_text(hosts)}"
    if change.fields:
        yield f"  ~ {listed(change.fields)} of the PoP"
