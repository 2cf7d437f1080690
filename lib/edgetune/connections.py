# SPDX-License-Identifier: Apache-2.0
"""What state is kept in: Redis, or the SQLite file that stands for it where there is none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgetune.config import Config
from edgetune.errors import StoreError
from edgetune.secret_files import read_secret

SCHEME = "sqlite:///"

_TABLES = """
CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS claims
  (pop TEXT PRIMARY KEY, value TEXT NOT NULL, expires REAL NOT NULL);
CREATE TABLE IF NOT EXISTS epochs (pop TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS heartbeats (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS congestion (pop TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS samples (pop TEXT NOT NULL, time REAL NOT NULL, value TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS samples_by_time ON samples (pop, time);
"""


class Database:
    """One file; every use is one transaction that takes the write lock at its start."""

    def __init__(self, url: str) -> None:
        self.path = Path(url[len(SCHEME) :])
        self._made = False

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection inside ``BEGIN IMMEDIATE``; StoreError when the file fails us."""
        try:
            connection = sqlite3.connect(str(self.path), timeout=30, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from None
        try:
            if not self._made:
                connection.executescript(_TABLES)
                self._made = True
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from None
        finally:
            connection.close()


def open_redis(config: Config) -> Any:
    """A Redis client; its password is read from a file, never from the configuration."""
    import redis

    password = read_secret(config.coordination_password_file, "coordination_password_file")
    return redis.Redis.from_url(
        config.coordination,
        password=password,
        socket_timeout=10,
        decode_responses=True,
        # What is no text is damaged, and named by who reads it.
        encoding_errors="replace",
    )


@contextmanager
def redis_errors(key: str = "") -> Iterator[None]:
    """Turn what the Redis client raises into StoreError, which names the key."""
    import redis

    try:
        yield
    except redis.RedisError as error:
        about = f"{key}: " if key else ""
        raise StoreError(f"Redis: {about}{error}") from None
