# SPDX-License-Identifier: Apache-2.0
"""What the sockets of a PoP are read by: each file is a source, named as in the inventory.

Its ``SOURCE`` is the class; ``congestion.source`` says what it promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from edgetune.congestion.source import Connections, SocketSource

SOURCES = tuple(sorted(file.stem for file in Path(__file__).parent.glob("[!_]*.py")))
"""The names of all sources."""


def source_class(name: str) -> type[SocketSource]:
    """The class of one of SOURCES."""
    found: type[SocketSource] = import_module(f"edgetune.congestion.sources.{name}").SOURCE
    return found


def open_source(name: str, fields: Mapping[str, str], connections: Connections) -> SocketSource:
    """One of SOURCES; a field that is not given has its default."""
    kind = source_class(name)
    usual = {own: its.default for own, its in kind.fields.items() if its.default is not None}
    return kind({**usual, **fields}, connections)
