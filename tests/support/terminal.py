# SPDX-License-Identifier: Apache-2.0
"""A pseudo terminal of 80 columns and 24 lines with `edgetune` in it."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from fcntl import ioctl
from pathlib import Path
from typing import Any

from tests.support import ROOT

PATIENCE = 400.0


class Terminal:
    """A terminal of 80 columns and 24 lines with `edgetune` in it."""

    def __init__(self, home: Path, words: list[str]) -> None:
        self._master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            ["setsid", "--ctty", sys.executable, "-m", "lab.cli", *words],
            cwd=ROOT,
            env=environment(home),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=False,
        )
        os.close(slave)
        self._shown = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 4096):
                self._shown += data
        except OSError:  # nobody has the other end open any more, or we closed this one
            return

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self._master, keys)

    def shown(self) -> bytes:
        """All that was written to it so far."""
        return bytes(self._shown)

    def modes(self) -> list[Any]:
        """How it takes and echoes what is typed."""
        return termios.tcgetattr(self._master)

    def close(self) -> None:
        """What happens when somebody closes the window."""
        os.close(self._master)

    def wait(self) -> tuple[int, list[str]]:
        """The exit status, and the last 24 lines as they are shown."""
        code, lines = self.all_lines()
        return code, lines[-24:]

    def all_lines(self) -> tuple[int, list[str]]:
        """The exit status, and every line that stays: none of those that were rewritten."""
        code = self.process.wait(PATIENCE)
        self._reader.join(60)
        return code, re.sub(r".*\r\x1b\[K", "", self._plain()).replace("\r", "").splitlines()

    def living(self) -> list[str]:
        """What the last line said, one after the other."""
        return re.findall(r"([^\r\n]+)\r\x1b\[K", self._plain())

    def _plain(self) -> str:
        """Without colours, and without what goes up a line."""
        return re.sub(r"\x1b\[[0-9]*[A-JL-Zm]", "", self._shown.decode())


def environment(home: Path) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "lib")])
    return {**os.environ, "EDGETUNE_HOME": str(home), "PYTHONPATH": path, "COLUMNS": "80"}
