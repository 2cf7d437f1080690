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

from edgetune.base.errors import InputError

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
        """KeyError for a name that is none; InputError for an entry point that gives no class."""
        if name not in self._files:
            return self._loaded(name)
        plugin: Plugin = getattr(import_module(f"{self._package}.{name}"), self._attribute)
        return plugin

    def __contains__(self, name: object) -> bool:
        return name in self._files or name in self._entry_points

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)

    def _loaded(self, name: str) -> Plugin:
        """A package beside us may be broken, or two of them may claim one name."""
        claims = self._entry_points[name]
        if len(claims) > 1:
            raise self._wrong(name, f"is claimed by {' and by '.join(sorted(claims))}")
        ((place, entry_point),) = claims.items()
        try:
            made: Plugin = entry_point.load()
        except Exception as error:  # noqa: BLE001 - what it runs as it is imported may raise anything
            problem = f"{type(error).__name__}: {error}"
            raise self._wrong(name, f"{place} cannot be loaded: {problem}") from None
        if not isinstance(made, type):
            raise self._wrong(name, f"{place} is no class")
        return made

    def _wrong(self, name: str, problem: str) -> InputError:
        return InputError(f"entry points {self._package}", name, problem)

    @property
    def _names(self) -> set[str]:
        return {*self._files, *self._entry_points}

    @cached_property
    def _files(self) -> set[str]:
        folders = import_module(self._package).__path__
        return {file.stem for folder in folders for file in Path(folder).glob("[!_]*.py")}

    @cached_property
    def _entry_points(self) -> Mapping[str, Mapping[str, EntryPoint]]:
        """By name and by what they name: a package may be found twice on the path."""
        from importlib.metadata import entry_points

        every: Any = entry_points()
        # A mapping of groups alone up to Python 3.9.
        of = getattr(every, "select", None)
        points = of(group=self._package) if of else every.get(self._package, ())
        by_name: dict[str, dict[str, EntryPoint]] = {}
        for point in points:
            by_name.setdefault(point.name, {})[point.value] = point
        return by_name
