# SPDX-License-Identifier: Apache-2.0
"""Where the rounds of PoPs are kept: beside the claims, in Redis or SQLite; and what steps answer.

They are too large for StackStorm's datastore, which tells its triggers of each value.
"""

from __future__ import annotations

from typing import Any, Protocol, TypedDict

from edgetune.base.documents.rounds import Rounds, read_rounds
from edgetune.net.databases import SCHEME, Database, open_redis, redis_errors
from edgetune.site.config import Config


class KeptRounds(Protocol):
    """The rounds of each PoP; every call raises StoreError when the backend fails."""

    def get(self, pop: str) -> Rounds | None:
        """Those of a PoP, or None; DamagedError if what is kept is none."""

    def put(self, rounds: Rounds) -> None:
        """Keep them instead of those before."""


def open_rounds(config: Config) -> KeptRounds:
    """Those of a configuration's ``coordination``."""
    if config.coordination.startswith(SCHEME):
        return SqliteRounds(Database(config.coordination))
    return RedisRounds(open_redis(config), config.sample_retention)


class SqliteRounds:
    """In a SQLite file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, pop: str) -> Rounds | None:
        """Those of a PoP, or None."""
        query = "SELECT value FROM congestion WHERE pop = ?"
        with self._database.transaction() as db:
            row = db.execute(query, (pop,)).fetchone()
        return read_rounds(pop, row[0]) if row else None

    def put(self, rounds: Rounds) -> None:
        """Keep them instead of those before."""
        row = (rounds.pop, rounds.document())
        with self._database.transaction() as db:
            db.execute("INSERT OR REPLACE INTO congestion VALUES (?, ?)", row)


class RedisRounds:
    """In Redis, for as long as samples are kept."""

    def __init__(self, client: Any, retention: float) -> None:
        self._client, self._retention = client, int(retention)

    def get(self, pop: str) -> Rounds | None:
        """Those of a PoP, or None."""
        with redis_errors(_key(pop)):
            kept = self._client.get(_key(pop))
        return read_rounds(pop, kept) if kept is not None else None

    def put(self, rounds: Rounds) -> None:
        """Keep them instead of those before."""
        with redis_errors(_key(rounds.pop)):
            self._client.set(_key(rounds.pop), rounds.document(), ex=self._retention)


def _key(pop: str) -> str:
    return f"edgetune:congestion:{pop}"


class RoundResult(TypedDict):
    """A step of a round: which task is ``next`` ("" for none), which hosts ``failed`` and why."""

    pop: str
    next: str
    number: int
    prefixes: int
    done: list[str]
    missing: list[str]
    failed: list[str]
    error: str
    message: str


class SelectedResult(RoundResult):
    """The same, and the chat channel that is told of it, "" where nothing is news."""

    channel: str


def round_result(pop: str, message: str, next: str = "", error: str = "") -> RoundResult:
    """One in which no host was told anything."""
    return {
        "pop": pop,
        "next": next,
        "number": 0,
        "prefixes": 0,
        "done": [],
        "missing": [],
        "failed": [],
        "error": error,
        "message": f"{pop}: {message}",
    }
