# SPDX-License-Identifier: Apache-2.0
"""What each `edgetune run` leaves in HOME/runs as long as it is not known to have ended well.

A file holds the ids of the workflows that the run carries on, one a line, and is locked by its
process. The kernel lifts the lock when that process ends, however it ends, so `edgetune status`
knows at once which rollouts have lost their owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from pathlib import Path

from lab.runner.execution import Execution, Listener, new_id

__all__ = ["Run", "ended_runs"]


class Run(Listener):
    """The file of this process; passes on what it is told as a listener."""

    def __init__(self, home: Path, shown: Listener) -> None:
        self._shown = shown
        folder = home / "runs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / f"{new_id()}.log"
        self._file = self._path.open("a", encoding="utf-8")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.is_terminal = False  # whether the file takes what the terminal took before
        self._terminals = [each for each in (1, 2) if os.isatty(each)]

    def started(self, execution: Execution) -> None:
        if execution.action.runner == "orquesta":
            self.write(f"{execution.id} {execution.action.ref}\n")
        self._shown.started(execution)

    def finished(self, execution: Execution) -> None:
        self._shown.finished(execution)

    def write(self, text: str) -> None:
        """Add a text to the file."""
        self._file.write(text)
        self._file.flush()

    def replace_terminal(self) -> None:
        """Let the file take what is printed from now on, where the terminal took it before."""
        for each in self._terminals:
            os.dup2(self._file.fileno(), each)
        self.is_terminal = bool(self._terminals)

    def close(self, keep: bool) -> None:
        """Lift the lock; without ``keep`` the file goes, too, and so does one without a line."""
        if not keep or not os.fstat(self._file.fileno()).st_size:
            self._path.unlink(missing_ok=True)
        self._file.close()


def ended_runs(home: Path) -> dict[Path, list[str]]:
    """The ids of the workflows of each run that has ended, by its file."""
    files = {path: _ids_if_ended(path) for path in (home / "runs").glob("*.log")}
    return {path: ids for path, ids in files.items() if ids}


def _ids_if_ended(path: Path) -> list[str]:
    with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return re.findall(r"^([0-9a-f]{24}) ", file.read(), re.MULTILINE)
    return []
