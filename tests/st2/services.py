# SPDX-License-Identifier: Apache-2.0
"""The services of the StackStorm that is tested, which tests kill and start again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest


def services(name: str, least: int = 1) -> list[int]:
    """The processes of a service in our network namespace, parents first; skips the test where
    there are fewer."""
    found = list(_processes(name))
    children = {child for process in found for child in below(process)}
    parents = [process for process in found if process not in children]
    if len(parents) < least:
        pytest.skip(f"{len(parents)} {name} run on this machine, and {least} are needed")
    return parents


def _processes(name: str) -> Iterator[int]:
    here = Path("/proc/self/ns/net").readlink()
    for path in sorted(Path("/proc").glob("[0-9]*"), key=lambda each: int(each.name)):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            named = any(word.endswith(b"/" + name.encode()) for word in words[:3])
            if named and (path / "ns/net").readlink() == here:
                yield int(path.name)


def below(parent: int) -> list[int]:
    """All processes that a process started, and those that these did."""
    with suppress(OSError):
        text = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
        own = [int(word) for word in text.split()]
        return own + [each for child in own for each in below(child)]
    return []


def restart(process: int) -> None:
    """Kill -9 a process and all below it, and start it again with the same words and settings."""
    path = Path(f"/proc/{process}")
    words = [os.fsdecode(word) for word in (path / "cmdline").read_bytes().split(b"\0")[:-1]]
    pairs = (os.fsdecode(row) for row in (path / "environ").read_bytes().split(b"\0") if row)
    environment = dict(pair.split("=", 1) for pair in pairs)
    folder, log = (path / "cwd").readlink(), (path / "fd/1").readlink()
    for each in [process, *below(process)]:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    with log.open("ab") as stream:
        # setsid forks, so that it is nobody's child here.
        subprocess.run(
            ["setsid", "--fork", *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            check=True,
        )
