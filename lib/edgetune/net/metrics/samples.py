# SPDX-License-Identifier: Apache-2.0
"""Samples of hosts, kept for a while in Redis, or SQLite in the local runner.

What a sweep brings is stored in documents of columns (see ``table``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from edgetune.agent.vocabulary.buckets import BUCKET
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.sample import Readings, Sample, SampleAnswer
from edgetune.base.documents.table import SampleTable
from edgetune.net.databases import SCHEME, Database, open_redis, redis_errors
from edgetune.net.metrics.source import MetricNames
from edgetune.site.config import Config

# A document of many hosts has a megabyte.
_READ_AT_ONCE = 64


def make_sample(host: str, time: float, answer: SampleAnswer, catalogue: MetricNames) -> Sample:
    """A sample from what a host answered; no reading is kept that no metric is made of."""
    counters = _kept(answer.counters, catalogue.counters)
    gauges = _kept(answer.gauges, catalogue.gauges)
    histograms = {*catalogue.histograms}
    buckets = {n: v for n, v in answer.counters.items() if n.partition(BUCKET)[0] in histograms}
    counters = {**counters, **buckets}
    return Sample(host, time, answer.boot_id, answer.uptime, counters, gauges)


def _kept(readings: Readings, names: Iterable[str]) -> Readings:
    return {name: readings[name] for name in names if name in readings}


@dataclass(frozen=True)
class Limit:
    """How many bytes a store may hold, and what it does when it is full (Redis' policy)."""

    most: int
    policy: str


class Samples(Protocol):
    """Stored samples of PoPs; every call raises StoreError when the backend fails."""

    def add(self, pop: str, samples: Sequence[Sample]) -> None:
        """Keep them, and forget those past their retention."""

    def window(self, pop: str, start: float, end: float) -> SampleTable:
        """All with start <= time <= end, oldest first, without those that are damaged."""

    def newest(self, pops: Sequence[str]) -> dict[str, float]:
        """When each PoP was sampled last, in epoch seconds; none of a PoP without a sample."""

    def limit(self) -> Limit | None:
        """What the backend may hold in all; None where nothing but the machine bounds it."""


def open_samples(config: Config) -> Samples:
    """The samples of a configuration's ``coordination``."""
    if config.coordination.startswith(SCHEME):
        return SqliteSamples(Database(config.coordination), config.sample_retention)
    return RedisSamples(open_redis(config), config.sample_retention)


class SqliteSamples(Samples):
    """Samples in a SQLite file."""

    def __init__(self, database: Database, retention: float) -> None:
        self._database, self._retention = database, retention

    def add(self, pop: str, samples: Sequence[Sample]) -> None:
        rows = [(pop, time, text) for time, text in _documents(samples)]
        if not rows:
            return
        newest = max(row[1] for row in rows)
        with self._database.transaction() as db:
            db.executemany("INSERT INTO samples VALUES (?, ?, ?)", rows)
            db.execute("DELETE FROM samples WHERE time < ?", (newest - self._retention,))

    def window(self, pop: str, start: float, end: float) -> SampleTable:
        query = "SELECT value FROM samples WHERE pop = ? AND time BETWEEN ? AND ? ORDER BY time"
        with self._database.transaction() as db:
            return _read(row[0] for row in db.execute(query, (pop, start, end)))

    def newest(self, pops: Sequence[str]) -> dict[str, float]:
        query = "SELECT MAX(time) FROM samples WHERE pop = ?"
        with self._database.transaction() as db:
            newest = {pop: db.execute(query, (pop,)).fetchone()[0] for pop in pops}
        return {pop: float(time) for pop, time in newest.items() if time is not None}

    def limit(self) -> Limit | None:
        return None  # a file grows as far as its disk does


class RedisSamples(Samples):
    """Samples in Redis, one sorted set a PoP with the time as score."""

    def __init__(self, client: Any, retention: float) -> None:
        self._client, self._retention = client, retention

    def add(self, pop: str, samples: Sequence[Sample]) -> None:
        if not samples:
            return
        documents = {text: time for time, text in _documents(samples)}
        newest = max(documents.values())
        pipe = self._client.pipeline()
        pipe.zadd(_key(pop), documents)
        pipe.zremrangebyscore(_key(pop), "-inf", newest - self._retention)
        pipe.expire(_key(pop), int(self._retention))
        with redis_errors(_key(pop)):
            pipe.execute()

    def window(self, pop: str, start: float, end: float) -> SampleTable:
        with redis_errors(_key(pop)):
            return _read(self._texts(_key(pop), start, end))

    def newest(self, pops: Sequence[str]) -> dict[str, float]:
        pipe = self._client.pipeline(transaction=False)
        for pop in pops:
            pipe.zrevrange(_key(pop), 0, 0, withscores=True)
        with redis_errors():
            newest = pipe.execute()
        return {pop: rows[0][1] for pop, rows in zip(pops, newest) if rows}

    def limit(self) -> Limit | None:
        with redis_errors():
            info = self._client.info("memory")
        most = int(info.get("maxmemory", 0))
        return Limit(most, str(info.get("maxmemory_policy", ""))) if most else None

    def _texts(self, key: str, start: float, end: float) -> Iterator[str]:
        """Some at a time: all of a large PoP would not fit into memory.

        Each turn begins at the score at which the one before ended. Members may be added and
        forgotten meanwhile, so none is named by its rank.
        """
        read: list[str] = []
        while True:
            many = len(read) + _READ_AT_ONCE
            page = self._client.zrangebyscore(key, start, end, 0, many, withscores=True)
            yield from (text for text, _ in page if text not in read)
            if len(page) < many:
                return
            start = page[-1][1]
            read = [text for text, score in page if score == start]


def _documents(samples: Sequence[Sample]) -> Iterator[tuple[float, str]]:
    """The samples of each time as one text."""
    by_time: dict[float, list[Sample]] = {}
    for sample in samples:
        by_time.setdefault(sample.time, []).append(sample)
    for time, at_once in by_time.items():
        yield time, json.dumps(SampleTable(at_once).document())


def _read(texts: Iterable[str]) -> SampleTable:
    """What is no sample is left out: damage, or of somebody else who writes there."""
    table = SampleTable()
    for text in texts:
        table.add_document(_parsed(text))
    return table


def _parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def _key(pop: str) -> str:
    return f"edgetune:samples:{pop}"
