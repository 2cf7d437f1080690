# SPDX-License-Identifier: Apache-2.0
"""What hosts are sampled by: each file is a source, named as in the inventory.

Its ``SOURCE`` is the class; ``metrics.source`` says what it promises.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from edgetune.metrics.source import Connections, MetricSource

SOURCES = tuple(sorted(file.stem for file in Path(__file__).parent.glob("[!_]*.py")))
"""The names of all sources."""


def source_class(name: str) -> type[MetricSource]:
    """The class of one of SOURCES."""
    found: type[MetricSource] = import_module(f"edgetune.metrics.sources.{name}").SOURCE
    return found


def open_source(name: str, connections: Connections) -> MetricSource:
    """One of SOURCES, for any number of PoPs."""
    return source_class(name)(connections)
