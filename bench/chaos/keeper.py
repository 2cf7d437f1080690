# SPDX-License-Identifier: Apache-2.0
"""Takes one lab down, with all that was started on it, when its standard input ends.

A process of its own, so that nothing is left even when the harness is killed. Its input is words:
"lab" leaves the lab up, "files" leaves its files.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from lab import CHECKOUT
from lab import pop as lab

SECONDS = 60.0


class Keeper:
    """The keeper of the lab in `home`; nothing of it is left after `close`."""

    def __init__(self, home: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"import {__name__} as own; own.main()", str(home)],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def close(self, *leave: str) -> None:
        """Take the lab down, but for what is to be left ("lab", "files")."""
        self._process.communicate(" ".join(leave).encode())


def processes_of(home: Path) -> list[int]:
    """What runs with EDGETUNE_HOME set to `home`, the `edgetune` command and its actions, and what
    works in there but for the lab's own: Redis writes its title over its environment.
    """
    mark = f"EDGETUNE_HOME={home}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            works_in = (path / "cwd").readlink()
            inside = home in works_in.parents and home / "lab" not in (works_in, *works_in.parents)
            if inside or mark in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
    return found


def stop_processes_of(home: Path) -> None:
    """Kill them, and wait until they are gone."""
    end = time.monotonic() + SECONDS
    while processes_of(home) and time.monotonic() < end:
        for pid in processes_of(home):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def main() -> None:
    """The process of a keeper."""
    home = Path(sys.argv[1])
    leave = sys.stdin.read().split()
    stop_processes_of(home)
    if "lab" not in leave:
        lab.down(home)
    if not leave:
        shutil.rmtree(home, ignore_errors=True)
