# SPDX-License-Identifier: Apache-2.0
"""What the sockets of a PoP are read by: each file is a source, named as in the inventory.

Its ``SOURCE`` is the class; ``congestion.source`` says what it promises.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgetune.base.plugins import Plugins
from edgetune.net.metrics.source import Connections
from edgetune.wings.congestion.source import SocketSource

SOURCES = Plugins[type[SocketSource]](__name__, "SOURCE")
"""The classes of all sources."""


def open_source(name: str, fields: Mapping[str, str], connections: Connections) -> SocketSource:
    """One of SOURCES; a field that is not given has its default."""
    kind = SOURCES[name]
    usual = {own: its.default for own, its in kind.fields.items() if its.default is not None}
    return kind({**usual, **fields}, connections)
