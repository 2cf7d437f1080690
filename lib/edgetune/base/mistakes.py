# SPDX-License-Identifier: Apache-2.0
"""All mistakes of a document, of which a reader names the first: what that names is put right in a
copy, as well as can be known, and the copy is read again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Callable, NamedTuple

from edgetune.base.errors import InputError

MOST = 50
"""Mistakes of one document that are named."""
_READS = 200
_GONE = object()
# What a reader may take for a field that has to be there.
_STAND_INS = (_GONE, "x", "1.0.0", "https://x", "tcp://x:1", "{much}", "lower", 1, ["x"])
_HINT = re.compile(r"\(did you mean (\S+)\?\)$")


class Read(NamedTuple):
    """The mistakes in their order, and what the reader made of the rest, or None."""

    mistakes: list[InputError]
    value: Any


class _Step(NamedTuple):
    """From a mapping or a list to what it holds; ``field`` names that in the document."""

    node: Any
    key: Any
    field: str


def read_on(document: object, read: Callable[[Any], object], where: str) -> Read:
    """Read a document of plain data that errors call ``where``, past each InputError about it.

    One mistake may hide another of the same entry, where that cannot be read without it.
    """
    draft, mistakes = _Draft(document), dict[str, InputError]()
    for _ in range(_READS):
        try:
            return Read([*mistakes.values()], read(draft.data))
        except InputError as error:
            steps = [*draft.steps(error.field or "")]
            field = steps[-1].field if steps else error.field or ""
            # What lies around a mistake may lack what was taken away for it, and what lies in it
            # may be a stand-in.
            if not any(_is_in(seen, field) or _is_in(field, seen) for seen in mistakes):
                mistakes[field] = InputError(error.where, field, error.problem)
            is_own = error.where == where and len(mistakes) < MOST
            if not (is_own and draft.mends(steps, error.problem)):
                break
    return Read([*mistakes.values()], None)


class _Draft:
    """The copy of a document, with what was tried for its fields."""

    def __init__(self, document: object) -> None:
        self.data: Any = deepcopy(document)
        self._tries: dict[str, Iterator[object]] = {}
        self._kept: dict[int, tuple[object, list[int]]] = {}

    def steps(self, field: str) -> Iterator[_Step]:
        """The way to a field as the reader of the copy names it, as far as it goes."""
        node, written = self.data, ""
        while field:
            index = re.match(r"\[(\d+)\]", field)
            if isinstance(node, dict):
                key: Any = max(
                    (name for name in node if _is_in(field, name)), key=len, default=field
                )
                written += f".{key}" if written else key
                field = field[len(key) :]
            elif isinstance(node, list) and index and int(index[1]) < len(node):
                key = int(index[1])
                written += f"[{self._numbers(node)[key]}]"
                field = field[index.end() :]
            else:
                return
            yield _Step(node, key, written)
            field = field[field.startswith(".") :]
            node = node.get(key) if isinstance(node, dict) else node[key]

    def mends(self, steps: Sequence[_Step], problem: str) -> bool:
        """Put right what an error is about, or what is around that; whether a way was left."""
        hint = _HINT.search(problem)
        if steps and hint and steps[-1].field not in self._tries:
            node, key, field = steps[-1]
            self._tries[field] = iter(_STAND_INS)
            if not problem.startswith("is not known"):
                node[key] = hint[1]
                return True
            if hint[1] not in node:
                node[hint[1]] = node.pop(key)
                return True
        return any(self._tries_next(step) for step in reversed(steps))

    def _tries_next(self, step: _Step) -> bool:
        """Take a field away, or have a stand-in for it, each once; whether one was left."""
        node, key, field = step
        is_list = isinstance(node, list)
        for value in self._tries.setdefault(field, iter(_STAND_INS)):
            if value is not _GONE and not is_list:
                node[key] = deepcopy(value)
                return True
            if value is _GONE and (is_list or key in node):
                del node[key]
                if is_list:
                    del self._numbers(node)[key]
                return True
        return False

    def _numbers(self, node: list[object]) -> list[int]:
        """Of the items of a list, which they are in the document."""
        # The list is held, as another one may get its id.
        return self._kept.setdefault(id(node), (node, [*range(len(node))]))[1]


def line_of(field: str, lines: Mapping[str, int]) -> int:
    """The line of a field, or of what it belongs to; 0 where none has one."""
    while field and field not in lines:
        field = re.sub(r"(^|\.)[^.\[\]]*$|\[\d+\]$", "", field)
    return lines[field] if field else 0


def _is_in(field: str, above: str) -> bool:
    return field == above or field.startswith((f"{above}.", f"{above}["))
