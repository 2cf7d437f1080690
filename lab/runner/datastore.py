# SPDX-License-Identifier: Apache-2.0
"""StackStorm's key-value store as an action's `action_service` offers it, on SQLite.

Loaded by file into action processes, hence no imports from `lab`, and none at the top that cost.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3

__all__ = ["Datastore", "KeyValuePair"]

_SYSTEM_SCOPE = "system"
_PAGE_SIZE = 100
_SCHEMA = "CREATE TABLE IF NOT EXISTS pairs (name TEXT PRIMARY KEY, value TEXT, expires REAL)"


class KeyValuePair:
    """What `list_values` lists."""

    def __init__(self, name: str, value: str) -> None:
        self.id = self.name = name
        self.value = value


class Datastore:
    """One action's view: local keys are named `pack.Class:key`, values are stored as `str(value)`.

    As on StackStorm, a key that cannot be read because the store fails reads as None.
    """

    def __init__(self, file: Path, pack: str, class_name: str, logger: logging.Logger) -> None:
        self._file = file
        self._prefix = f"{pack}.{class_name}:"
        self._logger = logger

    def get_value(
        self, name: str, local: bool = True, scope: str = _SYSTEM_SCOPE, decrypt: bool = False
    ) -> str | None:
        """The value, or None; nothing is ever encrypted here."""
        key = self._key(name, local, scope)
        try:
            pairs = self._select("name = ?", [key], limit=1, offset=0)
        except Exception as error:
            self._logger.exception("reading %s from the datastore failed: %s", key, error)
            return None
        return pairs[0].value if pairs else None

    def set_value(
        self,
        name: str,
        value: Any,
        ttl: int | None = None,
        local: bool = True,
        scope: str = _SYSTEM_SCOPE,
        encrypt: bool = False,
    ) -> bool:
        """Store `str(value)`; `ttl` in seconds."""
        expires = time.time() + ttl if ttl else None
        pair = (self._key(name, local, scope), str(value), expires)
        with self._connection() as connection:
            connection.execute("INSERT OR REPLACE INTO pairs VALUES (?, ?, ?)", pair)
        return True

    def delete_value(self, name: str, local: bool = True, scope: str = _SYSTEM_SCOPE) -> bool:
        """Whether the key existed."""
        key = self._key(name, local, scope)
        with self._connection() as connection:
            deleted = connection.execute("DELETE FROM pairs WHERE name = ?", [key])
        return bool(deleted.rowcount)

    def list_values(
        self,
        local: bool = True,
        prefix: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[KeyValuePair]:
        """Pairs by name, at most `limit` (100) from `offset` (0)."""
        start = (self._prefix if local else "") + (prefix or "")
        condition = "substr(name, 1, length(?)) = ?"
        return self._select(condition, [start, start], limit or _PAGE_SIZE, offset or 0)

    def get_user_info(self) -> dict[str, Any]:
        return {"username": "local", "rbac": {"enabled": False, "roles": []}}

    def _select(
        self, condition: str, values: list[str], limit: int, offset: int
    ) -> list[KeyValuePair]:
        query = (
            f"SELECT name, value FROM pairs WHERE {condition}"
            " AND (expires IS NULL OR expires > ?) ORDER BY name LIMIT ? OFFSET ?"
        )
        with self._connection() as connection:
            rows = connection.execute(query, [*values, time.time(), limit, offset]).fetchall()
        return [KeyValuePair(*row) for row in rows]

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        import sqlite3

        self._file.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(str(self._file), timeout=30)
        with contextlib.closing(connection), connection:
            connection.execute(_SCHEMA)
            yield connection

    def _key(self, name: str, local: bool, scope: str) -> str:
        if scope != _SYSTEM_SCOPE:
            raise ValueError(f"Scope {scope} is unsupported.")
        return self._prefix + name if local else name
