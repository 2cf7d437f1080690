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
    assert comes_true(condition, seconds), f"{what}: not in {seconds:.0f} s"


def comes_true(condition: Callable[[], Any], seconds: float = 60.0) -> bool:
    """Whether a condition holds in time.

    One that takes long, since it starts processes or looks at all that run, is asked as seldom as
    to leave most of the machine to what it waits for.
    """
    end, began = time.monotonic() + seconds, time.monotonic()
    while not condition():
        now = time.monotonic()
        if now > end:
            return False
        time.sleep(min(1.0, max(0.05, 2 * (now - began))))
        began = time.monotonic()
    return True


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
