# SPDX-License-Identifier: Apache-2.0
"""What tests leave: named where a test ends, and ended where the process of the tests does.

A socket, a process or a temporary file that a test leaves would fail the test after it, by a
warning or by its number. So each test is compared with how it began, and fails by its own name.

At the end of all a fixture is not enough: a worker whose pytest was interrupted ends itself with
`os._exit`. So each process of pytest has a watcher. Once the process is gone it kills whatever
carries its mark in the environment, and removes its temporary files. Without /proc none is killed.
"""

from __future__ import annotations

import gc
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = "TESTED_BY"
SECONDS = 30.0
GRACE = 20.0  # seconds in which a server's thread or a process may still end
RAM_DISK = Path("/dev/shm")
ROOM = 2 << 30
"""Bytes that a RAM disk has free, at least: several times what tests need at once."""


def temporary_place(ram_disk: Path) -> Path:
    """Where temporary files go: to a RAM disk that runs programs, unless TMPDIR is set.

    A run makes half a million files, and to remove one takes a disk up to a millisecond.
    """
    usual = Path(tempfile.gettempdir())
    if "TMPDIR" in os.environ or not os.access(ram_disk, os.W_OK | os.X_OK):
        return usual
    there = os.statvfs(ram_disk)
    runs_programs = not there.f_flag & os.ST_NOEXEC
    return ram_disk if runs_programs and there.f_bavail * there.f_frsize >= ROOM else usual


class Leftovers:
    """Compares what is there before and after a test; what wide fixtures opened does not count."""

    def __init__(self) -> None:
        self._folder = temporary_place(RAM_DISK)
        self._kept: set[str] = set()

    def own_folder(self) -> None:
        """Temporary files of this process, and of what it starts, lie apart until it has ended."""
        # Pytest keeps folders of failed tests; they are to outlive this one.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(self._folder))
        self._folder = Path(tempfile.mkdtemp(prefix="tests-", dir=self._folder))
        tempfile.tempdir = os.environ["TMPDIR"] = str(self._folder)
        _watch(self._folder)

    @contextmanager
    def of_wide_fixture(self) -> Generator[None, None, None]:
        """What the body opens may stay until its fixture ends."""
        before = self._there()
        try:
            yield
        finally:
            self._kept |= self._there() - before

    def before(self) -> set[str]:
        """What may be there after a test that begins now."""
        return self._there()

    def after(self, before: set[str]) -> list[str]:
        """What is there and was not before, though it had time to end; sorted."""
        end, own = time.monotonic() + GRACE, before | self._kept
        while left := self._there() - own:
            # What a peer asks of the server of a wide fixture is not this test's.
            served = _addresses(own, listening=True)
            left -= {each for each in left if _addresses({each}) & served}
            if not left:
                break
            gc.collect()
            if time.monotonic() > end:
                break
            time.sleep(0.05)
        return [f"{each} {_ends(each)}".strip() for each in sorted(left)]

    def _there(self) -> set[str]:
        sockets = {target for _, target in _sockets()}
        return {*sockets, *_children(), *(entry.path for entry in os.scandir(self._folder))}


of_tests = Leftovers()
"""That of the conftest; what tests share may say by it what it begins for all of them."""


# Twice a test, so as text and not as paths, which take four times as long.
def _sockets() -> Iterator[tuple[int, str]]:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
            if target.startswith("socket:"):
                yield int(name), target


def _opened(targets: set[str]) -> Iterator[socket.socket]:
    """These sockets, for a look at each."""
    for descriptor, target in _sockets():
        if target in targets:
            with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as own:
                yield own


def _ends(target: str) -> str:
    """The addresses of a socket, which say what it is for."""
    for own in _opened({target}):
        with suppress(OSError):
            return f"from {own.getsockname()} to {own.getpeername()}"
    return ""


def _addresses(targets: set[str], listening: bool = False) -> set[object]:
    """Those that sockets of this process have here, all or only those of servers."""
    return {
        own.getsockname()
        for own in _opened(targets)
        if own.family == socket.AF_INET
        and (not listening or own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    }


def _children() -> Iterator[str]:
    for task in os.listdir("/proc/self/task"):  # noqa: PTH208
        with suppress(OSError), open(f"/proc/self/task/{task}/children", "rb") as file:
            words = file.read().decode("ascii").split()
            yield from (f"process {pid}" for pid in words if not _is_tracker(pid))


def _is_tracker(pid: str) -> bool:
    """multiprocessing begins one for its process, with the first pool, and keeps it."""
    with suppress(OSError):
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _watch(folder: Path) -> None:
    """Mark all that this process starts from now on, and start its watcher."""
    mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    reader, _writer_held_to_the_end = os.pipe()
    unmarked = {name: value for name, value in os.environ.items() if name != MARK}
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, f"{MARK}={mark}", str(folder)],
        stdin=reader,
        stdout=subprocess.DEVNULL,
        env=unmarked,
        start_new_session=True,  # Ctrl-C is for the tests; the watcher comes after them
    )
    # It outlives this process, so nobody waits for it, and nothing is to warn of that.
    watcher.returncode = 0
    os.close(reader)
    os.environ[MARK] = mark


def main() -> None:
    """The process of a watcher; its standard input ends with the process that it watches."""
    sys.stdin.read()
    mark, folder = sys.argv[1], Path(sys.argv[2])
    end = time.monotonic() + SECONDS
    # In the folder lie those of workers, which are removed at the same time.
    while ((left := marked(mark)) or folder.exists()) and time.monotonic() < end:
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.1)


def marked(variable: str) -> list[int]:
    """Processes that were started with this variable, as NAME=VALUE."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if variable.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


if __name__ == "__main__":
    main()
