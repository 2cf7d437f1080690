# SPDX-License-Identifier: Apache-2.0
"""Inventories to hold the sources against: a file for each source, of the same name.

Its ``KEPT`` has by name what begins one: a service that runs, or what answers as one was recorded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

from tests.support.builders import write_yaml


class TestInventory(ABC):
    """An inventory, seen from the side of those who write it."""

    __test__ = False

    path: Path
    """What the option ``inventory`` says."""

    @abstractmethod
    def keep(self, pops: Mapping[str, Any]) -> None:
        """From now on it has these PoPs, with the fields of ``builders``, right or wrong."""

    @abstractmethod
    def damages(self) -> Mapping[str, Callable[[], None]]:
        """By name, what makes it one that nobody can read as a whole."""


Begin = Callable[[Path], "AbstractContextManager[TestInventory]"]


def of(source: str) -> ModuleType:
    """The file of a source; its KEPT is a mapping of Begin."""
    return import_module(f"{__name__}.{source}")


def overlay(
    path: Path, pops: Mapping[str, Any], source: Mapping[str, Any], told: Sequence[str] = ("hosts",)
) -> None:
    """Write what a source does not tell of PoPs; ``told`` are the fields that it does."""
    own = {
        name: {field: value for field, value in entry.items() if field not in told}
        for name, entry in pops.items()
    }
    write_yaml(path, {"source": source, "pops": own})
