# SPDX-License-Identifier: Apache-2.0
"""Copies of the checkout with something wrong on purpose."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lab import CHECKOUT

LEFT_OUT = (".git", ".venv", ".edgetune", "__pycache__", ".*_cache", ".hypothesis")


class MutationError(Exception):
    """The text that is to be replaced is not there, or is there more than once."""


@dataclass(frozen=True)
class Edit:
    """In `file` (below the checkout) the text `old`, which stands there once, becomes `new`."""

    file: str
    old: str
    new: str

    def apply(self, checkout: Path) -> None:
        """Change the file; MutationError where the code is not what the edit was written for."""
        path = checkout / self.file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        found = text.count(self.old)
        if found != 1:
            line = self.old.strip().splitlines()[0]
            raise MutationError(f"{self.file} has {found} times {line!r}, not once")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


def copy_checkout(to: Path, edits: Iterable[Edit] = ()) -> Path:
    """Copy the checkout, apply the edits to the copy, and return its path; MutationError."""
    shutil.copytree(
        CHECKOUT, to, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True
    )
    for edit in edits:
        edit.apply(to)
    return to
