# SPDX-License-Identifier: Apache-2.0
"""The programs of a simulated host."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path


def install_programs(root: Path, file: Path, names: Iterable[str]) -> None:
    """Have the Python `file` carry out each name: it is given the root, the name and the words."""
    for name in names:
        # A shell script, because a path in a #! line must be short and without blanks.
        words = [sys.executable, "-I", "-S", str(file), str(root), name]
        path = root / "usr/local/sbin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
