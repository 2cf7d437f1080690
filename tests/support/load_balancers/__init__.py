# SPDX-License-Identifier: Apache-2.0
"""Load balancers to hold the drain drivers against: a file for each driver, of the same name.

Its ``LOAD_BALANCERS`` has by name what starts one: a real one where it is installed, and one that
answers as a real one was recorded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Callable

from edgetune.net.traffic.on_hosts import Agents

SERVERS = ("e000", "e001", "e002", "e003")
"""The servers of each; all serve when it has started."""


class TestBalancer(ABC):
    """A load balancer, seen from its own side."""

    __test__ = False

    fields: Mapping[str, object]
    """Of its entry in the inventory."""

    agents: Agents | None = None
    """The way to the hosts, where each steers its own traffic."""

    @abstractmethod
    def sends_to(self, server: str) -> bool:
        """Whether it sends new clients there; never asked through the driver."""

    @abstractmethod
    def withdraw_by_hand(self, server: str) -> None:
        """What an operator does who takes a server out."""

    def starve(self, server: str) -> Callable[[], None] | None:
        """Send no new client there, although nobody withdrew it; what forgets that, as somebody
        else may do. None where nobody can."""
        return None

    @abstractmethod
    def open_session(self, server: str) -> None:
        """Have a request under way on a server until ``end_sessions``."""

    @abstractmethod
    def end_sessions(self) -> None:
        """Have no request under way."""

    @abstractmethod
    def cut_answers(self, share: float) -> None:
        """From now on each answer ends after that share of it, which is less than 1."""

    @abstractmethod
    def deny_changes(self) -> None:
        """From now on it answers questions, and refuses changes."""

    @abstractmethod
    def go_away(self) -> None:
        """From now on nobody answers."""


Start = Callable[[], "AbstractContextManager[TestBalancer]"]


def in_folder(make: Callable[[Path, ExitStack], TestBalancer]) -> Start:
    """What starts one in a folder of its own; the stack ends what it began."""

    @contextmanager
    def start() -> Iterator[TestBalancer]:
        with TemporaryDirectory() as folder, ExitStack() as stack:
            yield make(Path(folder), stack)

    return start


def of(driver: str) -> ModuleType:
    """The file of a driver; its LOAD_BALANCERS are a mapping of Start."""
    return import_module(f"{__name__}.{driver}")
