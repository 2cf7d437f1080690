# SPDX-License-Identifier: Apache-2.0
"""Ends what a process of the tests has started, however that process ends.

The end of a fixture is not enough: a worker whose pytest was interrupted ends itself with
`os._exit`. So each process of pytest has a watcher, which kills whatever carries its mark in the
environment once the process is gone. Without /proc nothing is found.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "TESTED_BY"
SECONDS = 30.0


def watch() -> None:
    """Mark all that this process starts from now on, and start its watcher."""
    mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    reader, _writer_held_to_the_end = os.pipe()
    unmarked = {name: value for name, value in os.environ.items() if name != MARK}
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, f"{MARK}={mark}"],
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
    end = time.monotonic() + SECONDS
    while (left := marked(sys.argv[1])) and time.monotonic() < end:
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
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
