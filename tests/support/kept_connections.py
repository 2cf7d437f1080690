# SPDX-License-Identifier: Apache-2.0
"""SQLite for tests: files that outlive no power cut, and connections that are opened once a test.

A rollout in memory has some hundred transactions, each with a connection of its own, and to open
one takes several times what the transaction takes.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import suppress
from typing import Any

MOST = 8
"""Connections of a thread: one that outlives its test is not to keep all that it ever opened."""

_open = sqlite3.connect
_kept = threading.local()


class _Connection(sqlite3.Connection):
    """One that stays open after its use, for the next use of the same file."""

    def close(self) -> None:
        if self.in_transaction:
            self.rollback()


def connect(place: str, **more: Any) -> sqlite3.Connection:
    """What stands for ``sqlite3.connect``: threads, processes and files that take the place of
    others get connections of their own."""
    if more.get("isolation_level", "") is not None:
        return _prepared(_open(place, **more))
    with suppress(OSError):
        there = os.stat(place)  # noqa: PTH116 - hundreds of times a test
        key = (place, os.getpid(), there.st_dev, there.st_ino, there.st_mode)
        known = _of_thread()
        if key in known and not known[key].in_transaction:
            return known[key]
        if key not in known:
            if len(known) == MOST:
                sqlite3.Connection.close(known.pop(next(iter(known))))
            known[key] = _prepared(_open(place, factory=_Connection, **more))
            return known[key]
    return _prepared(_open(place, **more))


def close_all() -> None:
    """Close those that this thread has; those of others end with their threads."""
    known = _of_thread()
    while known:
        sqlite3.Connection.close(known.popitem()[1])


def _of_thread() -> dict[tuple[object, ...], sqlite3.Connection]:
    known: dict[tuple[object, ...], sqlite3.Connection] = _kept.__dict__
    return known


def _prepared(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY")
    return connection
