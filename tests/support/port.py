# SPDX-License-Identifier: Apache-2.0
"""What the contract tests of all ports share: the files of lib that carry a port out, and the files
of tests to try them on.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Callable

import pytest

from tests.support import ROOT


@dataclass(frozen=True)
class Port:
    """Each file of ``folder``, one of ``names``, has its class as ``holds``, which ``class_of``
    gives; ``what`` is the word for one, and ``ships`` one of them.

    ``tried_by`` is a package of tests with a file of the same name each. Its ``has`` are, by name,
    what begins something to try it on; those in ``processes`` start processes. ``members`` are
    attributes of the class that are not abstract methods, ``given`` what it is made with, and
    ``common`` the fields of all, of which none has one of its own.
    """

    what: str
    folder: str
    holds: str
    class_of: Callable[[str], Any]
    names: Sequence[str]
    ships: str
    given: Callable[[str], Sequence[str]]
    tried_by: ModuleType
    has: str
    members: Sequence[str] = ()
    common: Sequence[str] = ()
    processes: Sequence[str] = ()

    def lacks(self, name: str) -> str:
        """Why a file does not hold a class that is whole, as a sentence, or ""."""
        path = f"{self.folder}/{name}.py"
        try:
            made = self.class_of(name)
        except AttributeError:
            return f"{path} has no {self.holds}, the class of its {self.what}"
        lacks = [own for own in self.members if not hasattr(made, own)]
        lacks += sorted(getattr(made, "__abstractmethods__", ()))
        if lacks:
            return f"{path}: {made.__name__} has no {', '.join(lacks)}"
        if not made.__doc__:
            return f"{path}: {made.__name__} has no docstring"
        taken, wanted = [*inspect.signature(made).parameters], [*self.given(name)]
        if taken != wanted:
            return f"{path}: {made.__name__} takes {taken}, not {wanted}"
        of_all = {*self.common} & {*getattr(made, "fields", ())}
        return f"{path}: entries of all have {', '.join(of_all)}" if of_all else ""

    def untried(self, name: str) -> str:
        """Why nothing tries one, as a sentence, or ""."""
        path = f"{self.tried_by.__name__.replace('.', '/')}/{name}.py"
        if not (ROOT / path).exists():
            return f"nothing tries the {self.what} {name!r}: {path} is missing"
        found = getattr(self.tried_by.of(name), self.has, None)
        return "" if found else f"nothing tries the {self.what} {name!r}: {path} has no {self.has}"

    @cached_property
    def whole(self) -> list[str]:
        return [name for name in self.names if not self.lacks(name)]

    def head(self) -> Callable[[str], None]:
        """A test that each file is whole and tried."""

        @pytest.mark.parametrize("name", self.names)
        def test(name: str) -> None:
            assert not self.lacks(name), self.lacks(name)
            assert not self.untried(name), self.untried(name)
            assert self.ships in self.whole and self.trials()

        return test

    def trials(self) -> list[Any]:
        """Parameters of a fixture: the name, and what begins something to try it on."""
        return [
            pytest.param(
                (name, begin),
                id=f"{name}-{kind}",
                marks=[pytest.mark.processes] if kind in self.processes else [],
            )
            for name in self.whole
            if not self.untried(name)
            for kind, begin in getattr(self.tried_by.of(name), self.has).items()
        ]
