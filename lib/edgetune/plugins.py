# SPDX-License-Identifier: Apache-2.0
"""Drivers and sources by name: each is a file of ours, or an entry point of a package beside us.

A file is imported when its name is asked for, and entry points are looked for when a name is of no
file: each action pays for what it imports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Plugin = TypeVar("Plugin")


class Plugins(Mapping[str, Plugin]):
    """What the ``attribute`` of each file of a package is, by the name of the file.

    Files that begin with ``_`` are none. A package that is installed beside edgetune adds others
    as entry points, whose group is the package here. None of them replaces a file.
    """

    def __init__(self, package: str, attribute: str) -> None:
        self._package, self._attribute = package, attribute

    def __getitem__(self, name: str) -> Plugin:
        """KeyError for a name that is none; what an entry point names is trusted to be one."""
        found: Any
        if name in self._files:
            found = getattr(import_module(f"{self._package}.{name}"), self._attribute)
        else:
            found = self._entry_points[name].load()
        made: Plugin = found
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._files or name in self._entry_points

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)

    @property
    def _names(self) -> set[str]:
        return {*self._files, *self._entry_points}

    @cached_property
    def _files(self) -> set[str]:
        folders = import_module(self._package).__path__
        return {file.stem for folder in folders for file in Path(folder).glob("[!_]*.py")}

    @cached_property
    def _entry_points(self) -> Mapping[str, EntryPoint]:
        from importlib.metadata import entry_points

        every: Any = entry_points()
        # A mapping of groups alone up to Python 3.9.
        of = getattr(every, "select", None)
        found = of(group=self._package) if of else every.get(self._package, ())
        return {each.name: each for each in found}
