# SPDX-License-Identifier: Apache-2.0
"""One mistake, and the tests that have to see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench._mutation import Edit


@dataclass(frozen=True)
class Mutation:
    """`name` says what the mutant does wrong; `tests` are words for pytest, the likeliest first."""

    name: str
    edit: Edit
    tests: tuple[str, ...]


def mutations_of(
    folder: str, tests: Sequence[str], *rows: tuple[str, str, str, str]
) -> tuple[Mutation, ...]:
    """Rows of (name, file in the folder, old text, new text), all with the same test files."""
    files = tuple(f"tests/{name}.py" for name in tests)
    return tuple(
        Mutation(name, Edit(f"{folder}/{file}", old, new), files) for name, file, old, new in rows
    )
