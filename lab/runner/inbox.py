# SPDX-License-Identifier: Apache-2.0
"""Trigger instances on their way to `edgetune serve`: files, from whichever process they come."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Inbox", "ServedError"]


class ServedError(Exception):
    """Somebody else serves this directory of state."""


class Inbox:
    """A folder of `home` that is there only while somebody serves it."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._folder = home / "serve"

    def post(self, trigger: str, payload: Any) -> None:
        """Leave a trigger instance for the server; nothing happens when there is none."""
        if not self._folder.is_dir():
            return
        name = f"{time.time_ns()}-{os.urandom(4).hex()}"
        draft = self._folder / f"{name}.draft"
        document = json.dumps({"trigger": trigger, "payload": payload}, default=str)
        with contextlib.suppress(FileNotFoundError):  # the server may end just now
            draft.write_text(document, encoding="utf-8")
            draft.rename(draft.with_suffix(".json"))

    def take(self) -> Iterator[tuple[str, Any]]:
        """Trigger and payload of what was posted, oldest first, each once."""
        for file in sorted(self._folder.glob("*.json")):
            document = json.loads(file.read_text(encoding="utf-8"))
            file.unlink()
            yield document["trigger"], document["payload"]

    @contextlib.contextmanager
    def served(self) -> Iterator[None]:
        """Let things be posted. Raises ServedError if somebody else serves them already."""
        self._home.mkdir(parents=True, exist_ok=True)
        home = os.open(self._home, os.O_RDONLY)
        try:
            _lock(home)
            # A server that was killed leaves what is older than this one.
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(mode=0o700)
            try:
                yield
            finally:
                shutil.rmtree(self._folder, ignore_errors=True)
        finally:
            os.close(home)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ServedError from error
