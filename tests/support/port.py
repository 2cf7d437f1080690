# SPDX-License-Identifier: Apache-2.0
"""What the contract tests of all ports share: the files of lib that carry a port out, and the files
of tests to try them on.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Callable

import pytest

from tests.support import ROOT


@dataclass(frozen=True)
class Port:
    """Each file of ``folder`` has its class as ``holds``, which ``class_of`` gives; ``what`` is the
    word for one.

    ``tried_by`` is a package of tests with a file of the same name each. Its ``has`` are, by name,
    what begins something to try it on; those in ``processes`` start processes. ``members`` are
    attributes of the class that are not abstract methods.
    """

    what: str
    folder: str
    holds: str
    class_of: Callable[[str], type]
    tried_by: ModuleType
    has: str
    members: Sequence[str] = ()
    processes: Sequence[str] = ()

    def made(self, name: str) -> tuple[type | None, str]:
        """The class, or why its file does not hold one that is whole, as a sentence."""
        path = self.path_of(name)
        try:
            made = self.class_of(name)
        except AttributeError:
            return None, f"{path} has no {self.holds}, the class of its {self.what}"
        lacks = [own for own in self.members if not hasattr(made, own)]
        lacks += sorted(getattr(made, "__abstractmethods__", ()))
        if lacks:
            return None, f"{path}: {made.__name__} has no {', '.join(lacks)}"
        if not made.__doc__:
            return None, f"{path}: {made.__name__} has no docstring"
        return made, ""

    def takes(self, name: str, wanted: Sequence[str], told: str) -> str:
        """Why a class is not made with these, as a sentence with ``told`` at its end, or ""."""
        made = self.class_of(name)
        taken = list(inspect.signature(made).parameters)
        same = taken == list(wanted)
        return "" if same else f"{self.path_of(name)}: {made.__name__} takes {taken}, {told}"

    def path_of(self, name: str) -> str:
        return f"{self.folder}/{name}.py"

    def untried(self, name: str) -> str:
        """Why nothing tries one, as a sentence, or ""."""
        path = f"{self.tried_by.__name__.replace('.', '/')}/{name}.py"
        if not (ROOT / path).exists():
            return f"nothing tries the {self.what} {name!r}: {path} is missing"
        found = getattr(self.tried_by.of(name), self.has, None)
        return "" if found else f"nothing tries the {self.what} {name!r}: {path} has no {self.has}"

    def trials(self, whole: Sequence[str]) -> list[Any]:
        """Parameters of a fixture: the name, and what begins something to try it on."""
        return [
            pytest.param(
                (name, begin),
                id=f"{name}-{kind}",
                marks=[pytest.mark.processes] if kind in self.processes else [],
            )
            for name in whole
            if not self.untried(name)
            for kind, begin in getattr(self.tried_by.of(name), self.has).items()
        ]
