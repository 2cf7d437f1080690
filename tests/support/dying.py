# SPDX-License-Identifier: Apache-2.0
"""Agents that are killed, or lose power, at any step of what they do.

A model of the page cache keeps what was synced alone: a directory has the entries of its last
sync, and a file the content of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Callable

from edgetune.agent.dispatch import answer
from tests.support.agent_root import AgentRoot

ON_DISK = ("etc", "var")


class Disk:
    """What would be read after a power cut of the directories ``tops`` below a root.

    `entries`: those that a directory has are there, also without a sync; files without one are
    empty. Both are things that file systems do.
    """

    def __init__(self, root: Path, entries: bool, tops: Sequence[str] = ON_DISK) -> None:
        self._root, self._tops = root, tops
        self._all_entries = entries
        self._entries: dict[Path, dict[str, os.stat_result]] = {}
        self._links: dict[int, Path] = {}
        self._contents: dict[int, bytes] = {}
        # No number of a file is given to another one while this one is open.
        self._open: list[int] = []
        for path in self._directories():
            self._sync_directory(path)
            for file in path.iterdir():
                if file.is_file() and not file.is_symlink():
                    self._sync_file(os.open(file, os.O_RDONLY))

    def sync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self._sync_directory(path)
        else:
            self._sync_file(os.dup(descriptor))

    def made(self, descriptor: int) -> None:
        """A file was made, or opened for writing."""
        self._open.append(os.dup(descriptor))

    def fail(self) -> None:
        """Leave what a boot would find."""
        if self._all_entries:
            for path in self._directories():
                self._sync_directory(path)
        for top in self._tops:
            shutil.rmtree(self._root / top)
            self._make(self._root / top, self._root.stat())

    def _directories(self) -> list[Path]:
        below = [path for top in self._tops for path in (self._root / top).rglob("*")]
        tops = [self._root / top for top in self._tops]
        return [path for path in (*tops, *below) if path.is_dir() and not path.is_symlink()]

    def _sync_directory(self, path: Path) -> None:
        self._entries[path] = {own.name: own.lstat() for own in path.iterdir()}
        for name, status in self._entries[path].items():
            if stat.S_ISLNK(status.st_mode):
                self._links[status.st_ino] = (path / name).readlink()

    def _sync_file(self, descriptor: int) -> None:
        self._open.append(descriptor)
        content = Path(f"/proc/self/fd/{descriptor}").read_bytes()
        self._contents[os.fstat(descriptor).st_ino] = content

    def _make(self, path: Path, status: os.stat_result) -> None:
        path.mkdir()
        for name, own in self._entries.get(path, {}).items():
            below = path / name
            if stat.S_ISDIR(own.st_mode):
                self._make(below, own)
            elif stat.S_ISLNK(own.st_mode):
                below.symlink_to(self._links[own.st_ino])
            else:
                below.write_bytes(self._contents.get(own.st_ino, b""))
                below.chmod(stat.S_IMODE(own.st_mode))
        path.chmod(stat.S_IMODE(status.st_mode))


class Kept(Disk):
    """One that has all that was written: a process alone is killed."""

    def __init__(self) -> None:
        """Nothing is remembered."""

    def sync(self, descriptor: int) -> None:
        """It is there already."""

    made = sync

    def fail(self) -> None:
        """It does not."""


def fail_at(step: int, disk: Disk, host: type) -> None:
    """Let the power fail before this process' ``step``-th change of a file, sync or program.

    Programs are processes, or (``attempt``) doubles of the ``host``.
    """
    left = [step]
    real = {name: getattr(os, name) for name in (*CHANGES, "fsync", "open")}

    def step_done() -> None:
        left[0] -= 1
        if left[0] < 0:
            for name, function in real.items():
                setattr(os, name, function)
            disk.fail()
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **more: Any) -> Any:
            step_done()
            return function(*given, **more)

        return called

    def synced(descriptor: int) -> None:
        step_done()
        real["fsync"](descriptor)
        disk.sync(descriptor)

    def opened(path: Any, flags: int, *mode: int, **more: Any) -> int:
        if not flags & (os.O_WRONLY | os.O_CREAT):
            return int(real["open"](path, flags, *mode, **more))
        step_done()
        descriptor = int(real["open"](path, flags, *mode, **more))
        disk.made(descriptor)
        return descriptor

    for name in CHANGES:
        setattr(os, name, counted(real[name]))
    setattr(os, "fsync", synced)  # noqa: B010
    setattr(os, "open", opened)  # noqa: B010
    setattr(subprocess, "run", counted(subprocess.run))  # noqa: B010
    setattr(host, "attempt", counted(getattr(host, "attempt", print)))  # noqa: B010


def steps(first: int = 0, stride: int = 1) -> Iterator[int]:
    """Numbers of steps, until what is cut there comes to an end."""
    yield from range(first, 500, stride)
    raise AssertionError("it never came to an end")


CHANGES = ("write", "rename", "unlink", "mkdir", "rmdir", "symlink", "posix_fallocate")


def cut(
    host: AgentRoot, document: bytes, step: int, entries: bool, tops: Sequence[str] = ON_DISK
) -> bool:
    """Answer in a process whose host loses power at a step; whether it came that far."""
    return _dies(host, document, step, lambda: Disk(host.path, entries, tops))


def killed(host: AgentRoot, document: bytes, step: int) -> bool:
    """Answer in a process that is killed at a step; whether it came that far."""
    return _dies(host, document, step, Kept)


def _dies(host: AgentRoot, document: bytes, step: int, disk: Callable[[], Disk]) -> bool:
    with warnings.catch_warnings():
        # Python 3.12 warns of forks beside threads; the child takes no lock of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            fail_at(step, disk(), type(host))
            reply = answer(str(host.path), document)
            assert reply["ok"], reply
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL)
    return status != 0
