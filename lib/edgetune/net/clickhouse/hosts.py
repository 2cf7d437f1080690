# SPDX-License-Identifier: Apache-2.0
"""Hosts as a table names them, and their names as parameters of a query."""

from __future__ import annotations

from collections.abc import Sequence

from edgetune.base.errors import InputError
from edgetune.site.inventory import Host

# ClickHouse takes 128 KiB for the value of a field.
_HOSTS_OF_A_FIELD = 500


def by_value(hosts: Sequence[Host], template: str, where: str) -> dict[str, str]:
    """The name of each host by what a table has for it; InputError if two have the same.

    ``template`` is the field ``host_value`` of the inventory, ``where`` names the server.
    """
    found: dict[str, str] = {}
    for host in hosts:
        value = template.replace("{name}", host.name).replace("{address}", host.address)
        if found.setdefault(value, host.name) != host.name:
            text = f"{value!r} stands for {found[value]} and for {host.name}"
            raise InputError("inventory", f"host_value of {where}", text)
    return found


def parameters_of(values: Sequence[str]) -> dict[str, str]:
    """Parameters with all of them: ``hosts0``, ``hosts1`` and so on."""
    parts = [
        values[first : first + _HOSTS_OF_A_FIELD]
        for first in range(0, len(values), _HOSTS_OF_A_FIELD)
    ]
    return {f"hosts{number}": array_of(part) for number, part in enumerate(parts)}


def is_one_of(parameters: Sequence[str]) -> str:
    """The SQL of: the column ``host`` is in one of these parameters."""
    told = (f"{{host:Identifier}} IN {{{own}:Array(String)}}" for own in parameters)
    return f"({' OR '.join(told)})"


def array_of(texts: Sequence[str]) -> str:
    """As ClickHouse writes an Array(String)."""
    quoted = (text.replace("\\", "\\\\").replace("'", "\\'") for text in texts)
    return "[" + ",".join(f"'{text}'" for text in quoted) + "]"
