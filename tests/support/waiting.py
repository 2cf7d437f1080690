# SPDX-License-Identifier: Apache-2.0
"""Waiting for what other processes do, and whether they are still there."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any


def wait_until(condition: Callable[[], Any], what: str = "it", seconds: float = 60.0) -> None:
    """Until a condition holds; on a machine with nothing else to do most take one second."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not in {seconds:.0f} s"
        time.sleep(0.05)


def wait_for_end(processes: Iterable[str]) -> None:
    """Of processes that are dying."""
    wait_until(lambda: not any(map(is_running, processes)), "the end of all")


def is_running(process: str) -> bool:
    try:
        state = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def about(folder: Path) -> list[str]:
    """Command lines of other processes that work in a folder, have a file open there, or were told
    of it by a word or a variable."""
    found, named = [], re.compile(re.escape(str(folder)) + r"(?![\w.-])")
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            told = (path / "environ").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            links = [path / "cwd", *(path / "fd").iterdir()]
            places = " ".join(str(link.readlink()) for link in links if link.is_symlink())
            if int(path.name) != os.getpid() and named.search(f"{words} {told} {places}"):
                found.append(words)
    return found
