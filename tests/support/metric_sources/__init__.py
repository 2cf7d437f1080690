# SPDX-License-Identifier: Apache-2.0
"""Hosts to hold the metric sources against: a file for each source, of the same name.

Its ``MEASURED`` has by name what begins hosts that are measured in its way: by a real service, or
by what answers as one was recorded. Its ``end``, if there is one, ends what these have in common.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from types import ModuleType
from typing import Callable

from edgetune.intent.metrics.catalogue import METRICS
from edgetune.net.metrics.source import Connections
from edgetune.site.inventory import Host, Pop


class TestHosts(ABC):
    """Hosts, seen from their own side. All answer at first, and have counted something."""

    __test__ = False

    connections: Connections
    tells_health: bool
    tells_drift: bool
    counters: Sequence[str] = METRICS.counters
    """Those that the source can tell."""
    apart: float = 0.0
    """How many seconds before it is asked a source may have measured."""

    def settle(self) -> None:  # noqa: B027
        """Wait until the source has measured all that was changed."""

    @abstractmethod
    def fields(self, pop: str) -> Mapping[str, str]:
        """Of ``metrics`` of a PoP in the inventory; there are lab1 and lab2."""

    @abstractmethod
    def count(self, host: Host, reading: str, value: float | None) -> None:
        """From now on a counter shows that, in the unit of its name; None where nobody can read."""

    @abstractmethod
    def boot(self, host: Host) -> None:
        """It boots, and counts from 0."""

    @abstractmethod
    def go_silent(self, host: Host) -> None:
        """Nobody can read anything of it, and what was read is older than a minute."""

    @abstractmethod
    def go_away(self, pop: Pop) -> None:
        """Whatever measures the hosts of a PoP does not answer any more."""

    @abstractmethod
    def uptime(self, host: Host) -> float:
        """Of the moment at which its counters were read last, in seconds."""

    @abstractmethod
    def fall_ill(self, host: Host) -> None:
        """From now on its service answers no health check well."""

    @abstractmethod
    def drift(self, host: Host, setting: str) -> None:
        """A setting is not as a tuning left it; only where the source tells drift."""

    @abstractmethod
    def oddities(self) -> Mapping[str, Callable[[Host], None]]:
        """By name, what makes that which is told of a host something that no host can count."""


Begin = Callable[[], "AbstractContextManager[TestHosts]"]


def of(source: str) -> ModuleType:
    """The file of a source; its MEASURED is a mapping of Begin."""
    return import_module(f"{__name__}.{source}")
