# SPDX-License-Identifier: Apache-2.0
"""Finding and ending exactly the processes of a lab, and clearing away its files."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from lab.pop.layout import Layout

PROC = Path("/proc")


def start_time(pid: int) -> str:
    """When a process started, "" if there is none: with its PID it names one process for ever."""
    if (PROC / "self/stat").exists():
        try:
            text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return text.rpartition(")")[2].split()[19]
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def clean(layout: Layout) -> None:
    """End what the hosts started, and remove what says that a lab is there."""
    end_below(layout.lab / "hosts")
    layout.forget()
    shutil.rmtree(layout.lab / "hosts", ignore_errors=True)


def end_below(directory: Path) -> None:
    """Kill what runs with an EDGETUNE_ROOT in `directory`, revert timers of the agent included.

    Without /proc (macOS) nothing is found: what a host left running ends by itself.
    """
    for pid in _running_below(directory):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _running_below(directory: Path) -> list[int]:
    found = []
    root = b"EDGETUNE_ROOT=" + os.fsencode(directory) + b"/"
    for environment in PROC.glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            variables = environment.read_bytes().split(b"\0")
            if any((variable + b"/").startswith(root) for variable in variables):
                found.append(int(environment.parent.name))
    return [pid for pid in found if pid != os.getpid()]
