# SPDX-License-Identifier: Apache-2.0
"""Texts by key that are kept beside the claims, in Redis or SQLite."""

from __future__ import annotations

from typing import Any, Union

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
            text: str | None = self._client.get(self._prefix + key)
        return text

    def put(self, key: str, value: str) -> None:
        with redis_errors(self._prefix + key):
            self._client.set(self._prefix + key, value, ex=self._kept)


Texts = Union[SqliteTexts, RedisTexts]
