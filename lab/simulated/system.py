# SPDX-License-Identifier: Apache-2.0
"""What the lab asks of the operating system of a simulated host: a module for each one has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from . import host as linux
from .counters import Counters
from .freebsd import host as freebsd
from .scripts import Answer


class System(Protocol):
    """All work on the root of a host."""

    REBOOT_MARK: str
    """The file that is there when the host was told to reboot."""

    def install(self, root: Path, name: str, address: str, release: str) -> None:
        """Make the disk: what outlives a reboot. `release` is "" where there is one alone."""
        ...

    def start_kernel(self, root: Path, name: str) -> None:
        """Make everything a boot makes anew, before any service starts."""
        ...

    def answer(self, root: Path, name: str, words: Sequence[str]) -> Answer:
        """Carry a program out."""
        ...

    def boot_hook(self, root: Path) -> list[str]:
        """The command of our boot hook; none where there is none."""
        ...

    def start_service(self, root: Path) -> None:
        """Start nginx."""
        ...

    def backlog(self, root: Path) -> int | None:
        """The length of nginx' accept queue, None while it does not run."""
        ...

    def resent(self, root: Path) -> float:
        """Segments sent again of those sent."""
        ...

    def queues(self, root: Path) -> Mapping[str, int]:
        """How many queues its card has of each side, where it shows what they raise."""
        ...

    def counted(self, counters: Counters) -> Mapping[str, str]:
        """Files of what a host counted, by path."""
        ...


SYSTEMS: Mapping[str, System] = {"Linux": linux, "FreeBSD": freebsd}
