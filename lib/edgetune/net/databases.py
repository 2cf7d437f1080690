# SPDX-License-Identifier: Apache-2.0
"""What state is kept in: Redis, or the SQLite file that stands for it where there is none."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgetune.base import clock
from edgetune.base.errors import StoreError
from edgetune.base.secret_files import read_secret
from edgetune.net.connection import Connection, Tls, reach, reach_path
from edgetune.site.config import Config

SCHEME = "sqlite:///"
BUSY = 30.0
"""Seconds that a transaction of SQLite waits for another process."""
REDIS_TIMEOUT = 10.0
"""Seconds to connect to Redis, and for one command and all of its answer."""
MOST_OF_REDIS = 256 << 20
"""Bytes of one answer of Redis: samples are read by the hour."""

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
            connection = sqlite3.connect(str(self.path), timeout=BUSY, isolation_level=None)
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
    parse_url: Any = redis.connection.parse_url
    place = parse_url(config.coordination)
    kind = place.pop("connection_class", redis.Connection)
    # The timeout of redis-py starts anew with every byte.
    pool = redis.ConnectionPool(
        connection_class=_bounded(kind, config.coordination.startswith("rediss:")),
        **place,
        password=password,
        socket_timeout=REDIS_TIMEOUT,
        decode_responses=True,
        # What is no text is damaged, and named by who reads it.
        encoding_errors="replace",
    )
    client = redis.Redis(connection_pool=pool)
    client.auto_close_connection_pool = True
    return client


def _bounded(kind: Any, is_secured: bool) -> Any:
    """Connections of that kind with one deadline for a command and all of its answer."""

    class Bounded(kind):  # type: ignore[misc]
        def _connect(self) -> _Socket:
            ends = clock.monotonic() + REDIS_TIMEOUT
            if hasattr(self, "path"):
                return _Socket(Connection(reach_path(self.path, ends), ends))
            plain = Connection(reach(self.host, self.port, ends), ends)
            if not is_secured:
                return _Socket(plain)
            from edgetune.net.tls import secured

            return _Socket(secured(plain, Tls().context(), self.host))

        def send_packed_command(self, *given: Any, **more: Any) -> None:
            if self._sock is not None:
                self._sock.grant(clock.monotonic() + REDIS_TIMEOUT, MOST_OF_REDIS)
            super().send_packed_command(*given, **more)

    return Bounded


class _Socket:
    """What redis-py, and hiredis below it, uses of a socket."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._waits = connection, True
        self.sendall, self.close = connection.sendall, connection.close
        self.grant, self.fileno = connection.grant, connection.fileno

    def settimeout(self, seconds: float | None) -> None:
        self._waits = seconds != 0

    def recv(self, size: int, flags: int = 0) -> bytes:
        if self._waits and not flags:
            return self._connection.recv(size)
        # Whether a connection that was idle has ended.
        if self._connection.is_quiet():
            raise BlockingIOError(errno.EWOULDBLOCK, "nothing came")
        return b""

    def recv_into(self, buffer: Any) -> int:
        part = self.recv(len(buffer))
        buffer[: len(part)] = part
        return len(part)

    def shutdown(self, how: int) -> None: ...


@contextmanager
def redis_errors(key: str = "") -> Iterator[None]:
    """Turn what the Redis client raises into StoreError, which names the key."""
    import redis

    try:
        yield
    except redis.RedisError as error:
        about = f"{key}: " if key else ""
        wrong = "it refuses the login: its password stands in coordination_password_file"
        problem = wrong if isinstance(error, redis.AuthenticationError) else error
        raise StoreError(f"Redis: {about}{problem}") from None
