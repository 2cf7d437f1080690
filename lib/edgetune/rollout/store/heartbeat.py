# SPDX-License-Identifier: Apache-2.0
"""Signs of life, kept beside the claims: of the guard, and of actions that take long.

StackStorm shows an action as running for ever when its action runner was killed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Callable, NamedTuple, Protocol

from edgetune.base import clock
from edgetune.base.documents.reading import check_is, read_document
from edgetune.base.errors import EdgetuneError
from edgetune.net.databases import SCHEME, Database, open_redis, redis_errors
from edgetune.site.config import Config

GUARD = "guard"
EVERY = 20.0
"""Seconds between two of an action; one that ends sooner gives none."""
SILENT = 60.0
"""Seconds without one, after which an action is dead."""
_KEPT = 30 * 86400
"""Seconds."""


class Heartbeat(NamedTuple):
    """Epoch seconds, and the problem that was met or ""."""

    time: float
    problem: str = ""


class Heartbeats(Protocol):
    """The last one by name; every call raises StoreError when the backend fails."""

    def beat(self, name: str, heartbeat: Heartbeat) -> None:
        """Keep it instead of the one before."""

    def last(self, name: str) -> Heartbeat | None:
        """The last one, or None; DamagedError if what is kept is none."""


def open_heartbeats(config: Config) -> Heartbeats:
    """Those of a configuration's ``coordination``."""
    if config.coordination.startswith(SCHEME):
        return SqliteHeartbeats(Database(config.coordination))
    return RedisHeartbeats(open_redis(config))


@contextmanager
def heartbeat_of(execution: str, heartbeats: Callable[[], Heartbeats]) -> Iterator[None]:
    """Give a sign of life every ``EVERY`` seconds while the body runs, from a thread."""
    ended = threading.Event()

    def give() -> None:
        while not ended.wait(EVERY):
            with suppress(EdgetuneError):
                heartbeats().beat(execution, Heartbeat(clock.wall()))

    thread = threading.Thread(target=give, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


class SqliteHeartbeats:
    """In a SQLite file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def beat(self, name: str, heartbeat: Heartbeat) -> None:
        """Keep it instead of the one before."""
        row = (_key(name), json.dumps(heartbeat._asdict()))
        with self._database.transaction() as db:
            db.execute("INSERT OR REPLACE INTO heartbeats VALUES (?, ?)", row)

    def last(self, name: str) -> Heartbeat | None:
        """The last one, or None."""
        query = "SELECT value FROM heartbeats WHERE name = ?"
        with self._database.transaction() as db:
            row = db.execute(query, (_key(name),)).fetchone()
        return _heartbeat(_key(name), row[0]) if row else None


class RedisHeartbeats:
    """In Redis, for a month."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def beat(self, name: str, heartbeat: Heartbeat) -> None:
        """Keep it instead of the one before."""
        with redis_errors(_key(name)):
            self._client.set(_key(name), json.dumps(heartbeat._asdict()), ex=_KEPT)

    def last(self, name: str) -> Heartbeat | None:
        """The last one, or None."""
        with redis_errors(_key(name)):
            kept = self._client.get(_key(name))
        return _heartbeat(_key(name), kept) if kept is not None else None


def _key(name: str) -> str:
    return f"edgetune:heartbeat:{name}"


def _heartbeat(key: str, text: Any) -> Heartbeat:
    kept = read_document(key, text)
    at, problem = kept.get("time"), kept.get("problem")
    check_is(key, "time", type(at) in (int, float), "is no time")
    check_is(key, "problem", type(problem) is str, "is no text")
    return Heartbeat(float(str(at)), str(problem))
