# SPDX-License-Identifier: Apache-2.0
"""Texts by key that are kept beside the claims, in Redis or SQLite; among them signs of life: of
the guard, and of actions that take long.

StackStorm shows an action as running for ever when its action runner was killed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Callable, NamedTuple, Union

from edgetune.base import clock
from edgetune.base.documents.reading import check_is, read_document
from edgetune.base.errors import EdgetuneError
from edgetune.net.databases import SCHEME, Database, open_redis, redis_errors
from edgetune.site.config import Config


def open_texts(config: Config, table: str, column: str, kept: int, prefix: str = "") -> Texts:
    """Those of a ``table`` of SQLite by the key of its ``column``.

    Redis keeps them for ``kept`` s, under keys that begin with ``prefix`` there.
    """
    if config.coordination.startswith(SCHEME):
        return SqliteTexts(Database(config.coordination), table, column)
    return RedisTexts(open_redis(config), kept, prefix)


class SqliteTexts:
    """Texts in a table of a SQLite file; every call raises StoreError when the file fails us."""

    def __init__(self, database: Database, table: str, column: str) -> None:
        self._database, self._table, self._column = database, table, column

    def get(self, key: str) -> str | None:
        """The text, or None."""
        query = f"SELECT value FROM {self._table} WHERE {self._column} = ?"
        with self._database.transaction() as db:
            row = db.execute(query, (key,)).fetchone()
        return row[0] if row else None

    def put(self, key: str, value: str) -> None:
        """Keep it instead of the one before."""
        with self._database.transaction() as db:
            db.execute(f"INSERT OR REPLACE INTO {self._table} VALUES (?, ?)", (key, value))


class RedisTexts:
    """The same in Redis, for so many seconds."""

    def __init__(self, client: Any, kept: int, prefix: str = "") -> None:
        self._client, self._kept, self._prefix = client, kept, prefix

    def get(self, key: str) -> str | None:
        with redis_errors(self._prefix + key):
            found: str | None = self._client.get(self._prefix + key)
        return found

    def put(self, key: str, value: str) -> None:
        with redis_errors(self._prefix + key):
            self._client.set(self._prefix + key, value, ex=self._kept)


Texts = Union[SqliteTexts, RedisTexts]
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


class Heartbeats:
    """The last one by name; every call raises StoreError when the backend fails."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    def beat(self, name: str, heartbeat: Heartbeat) -> None:
        """Keep it instead of the one before."""
        self._texts.put(_key(name), json.dumps(heartbeat._asdict()))

    def last(self, name: str) -> Heartbeat | None:
        """The last one, or None; DamagedError if what is kept is none."""
        key = _key(name)
        text = self._texts.get(key)
        if text is None:
            return None
        kept = read_document(key, text)
        at, problem = kept.get("time"), kept.get("problem")
        check_is(key, "time", type(at) in (int, float), "is no time")
        check_is(key, "problem", type(problem) is str, "is no text")
        return Heartbeat(float(str(at)), str(problem))


def open_heartbeats(config: Config) -> Heartbeats:
    """Those of a configuration's ``coordination``."""
    return Heartbeats(open_texts(config, "heartbeats", "name", _KEPT))


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


def _key(name: str) -> str:
    return f"edgetune:heartbeat:{name}"
