# SPDX-License-Identifier: Apache-2.0
"""Samples of hosts, kept for a while in Redis, or SQLite in the local runner.

A sample is ``{"schema": 1, "host", "time", "boot_id", "uptime", "counters", "gauges"}``:
``time`` is the controller's clock in seconds, counters grow within one ``boot_id`` only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from edgetune import SAMPLE_SCHEMA
from edgetune.backends import SCHEME, Database, open_redis, redis_errors
from edgetune.config import Config

Sample = Mapping[str, Any]

LARGEST = sys.float_info.max
"""JSON has larger ones; no array takes them."""

_NUMBERS = frozenset((int, float))
# A reading that could not be taken is None.
_READINGS = frozenset((int, float, type(None)))


def countable(value: Any) -> bool:
    """Whether a stored value is a number that a host can count: damaged samples hold others."""
    return type(value) in _NUMBERS and 0 <= value <= LARGEST


def make_sample(host: str, time: float, data: Mapping[str, Any]) -> Sample:
    """A sample from what a host answered to ``sample``, as ``hosts.answers`` let it pass.

    Nothing else of the answer is kept, so a sample takes at most some kilobytes.
    """
    kept = {key: data[key] for key in ("boot_id", "uptime", "counters", "gauges")}
    return {"schema": SAMPLE_SCHEMA, "host": host, "time": time, **kept}


class Samples(Protocol):
    """Stored samples of PoPs; every call raises StoreError when the backend fails."""

    def add(self, pop: str, samples: Sequence[Sample]) -> None:
        """Keep them, and forget those past their retention."""

    def window(self, pop: str, start: float, end: float) -> list[Sample]:
        """All with start <= time <= end, oldest first, without those that are damaged."""


def open_samples(config: Config) -> Samples:
    """The samples of a configuration's ``coordination``."""
    if config.coordination.startswith(SCHEME):
        return SqliteSamples(Database(config.coordination), config.sample_retention)
    return RedisSamples(open_redis(config), config.sample_retention)


class SqliteSamples:
    """Samples in a SQLite file."""

    def __init__(self, database: Database, retention: float) -> None:
        self._database = database
        self._retention = retention

    def add(self, pop: str, samples: Sequence[Sample]) -> None:
        """Keep them, and forget those past their retention."""
        rows = [(pop, sample["time"], json.dumps(sample)) for sample in samples]
        if not rows:
            return
        newest = max(row[1] for row in rows)
        with self._database.transaction() as db:
            db.executemany("INSERT INTO samples VALUES (?, ?, ?)", rows)
            db.execute("DELETE FROM samples WHERE time < ?", (newest - self._retention,))

    def window(self, pop: str, start: float, end: float) -> list[Sample]:
        """All with start <= time <= end, oldest first."""
        query = "SELECT value FROM samples WHERE pop = ? AND time BETWEEN ? AND ? ORDER BY time"
        with self._database.transaction() as db:
            rows = db.execute(query, (pop, start, end)).fetchall()
        return _read(row[0] for row in rows)


class RedisSamples:
    """Samples in Redis, one sorted set a PoP with the time as score."""

    def __init__(self, client: Any, retention: float) -> None:
        self._client = client
        self._retention = retention

    def add(self, pop: str, samples: Sequence[Sample]) -> None:
        """Keep them, and forget those past their retention."""
        if not samples:
            return
        newest = max(sample["time"] for sample in samples)
        pipe = self._client.pipeline()
        pipe.zadd(_key(pop), {json.dumps(sample): sample["time"] for sample in samples})
        pipe.zremrangebyscore(_key(pop), "-inf", newest - self._retention)
        pipe.expire(_key(pop), int(self._retention))
        with redis_errors(_key(pop)):
            pipe.execute()

    def window(self, pop: str, start: float, end: float) -> list[Sample]:
        """All with start <= time <= end, oldest first."""
        with redis_errors(_key(pop)):
            return _read(self._client.zrangebyscore(_key(pop), start, end))


def _read(texts: Iterable[str]) -> list[Sample]:
    """All at once, so that they share their keys: a week of a PoP has millions of samples.

    What is no sample is left out: damage, or of somebody else who writes there.
    """
    each = [text for text in texts if isinstance(text, str)]
    try:
        found = _parsed(",".join(each))
    except (ValueError, RecursionError):
        found = [value for text in each for value in _parsed_alone(text)]
    return [value for value in found if _is_sample(value)]


def _parsed(texts: str) -> list[Any]:
    values: list[Any] = json.loads(f"[{texts}]")
    return values


def _parsed_alone(text: str) -> list[Any]:
    try:
        return _parsed(text)
    except (ValueError, RecursionError):
        return []


def _is_sample(value: Any) -> bool:
    """Whether every field is of its type. What a number may be is for its reader to say."""
    return (
        type(value) is dict
        and type(value.get("host")) is str
        and type(value.get("boot_id")) is str
        and type(value.get("time")) in _NUMBERS
        and type(value.get("uptime")) in _NUMBERS
        and _has_readings(value.get("counters"))
        and _has_readings(value.get("gauges"))
    )


def _has_readings(value: Any) -> bool:
    return type(value) is dict and _READINGS.issuperset(map(type, value.values()))


def _key(pop: str) -> str:
    return f"edgetune:samples:{pop}"
