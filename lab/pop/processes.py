# SPDX-License-Identifier: Apache-2.0
"""The processes of one host, as the supervisor sees them in its own /proc."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .layout import INPUT, LabError

PROC = Path("/proc")
BOOTSTRAP = [b"-I", b"-S", b"-c"]  # how the controller starts the agent over SSH
PROGRAMS = ("sshd", "nginx", "agent")
DEATH_SECONDS = 10.0


def kill(init: int, program: str) -> int:
    """SIGKILL all of a program in the PID namespace of `init`; returns how many there were.

    They are dead when it returns, unless the kernel takes longer than `DEATH_SECONDS`.
    """
    if program not in PROGRAMS:
        raise LabError(f"what can be killed is {', '.join(PROGRAMS)}, not {program}", INPUT)
    killed = [pid for pid in _of_host(init) if _is(program, pid) and not _is_dead(pid)]
    for pid in killed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + DEATH_SECONDS
    while not all(map(_is_dead, killed)) and time.monotonic() < end:
        time.sleep(0.005)
    return len(killed)


def _of_host(init: int) -> Iterator[int]:
    own = _namespace(init)
    for path in PROC.glob("[0-9]*"):
        with suppress(OSError):
            if _namespace(int(path.name)) == own:
                yield int(path.name)


def _namespace(pid: int) -> int:
    return (PROC / str(pid) / "ns/pid").stat().st_ino


def _is(program: str, pid: int) -> bool:
    with suppress(OSError):
        if program == "agent":
            return _is_agent((PROC / str(pid) / "cmdline").read_bytes().split(b"\0"))
        return (PROC / str(pid) / "comm").read_text().strip() == program
    return False


def _is_dead(pid: int) -> bool:
    """Gone, or a zombie that its parent has not asked about yet."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(") ")[2][0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _is_agent(words: list[bytes]) -> bool:
    names = [Path(os.fsdecode(word)).name for word in words]
    return names[0].startswith("python3") and (words[1:4] == BOOTSTRAP or "agent.py" in names[1:])
