# SPDX-License-Identifier: Apache-2.0
"""What hosts are sampled by: each file is a source, named as in the inventory.

Its ``SOURCE`` is the class; ``metrics.source`` says what it promises.
"""

from __future__ import annotations

from edgetune.base.plugins import Plugins
from edgetune.net.metrics.source import Connections, MetricSource

SOURCES = Plugins[type[MetricSource]](__name__, "SOURCE")
"""The classes of all sources."""


def open_source(name: str, connections: Connections) -> MetricSource:
    """One of SOURCES, for any number of PoPs."""
    return SOURCES[name](connections)
