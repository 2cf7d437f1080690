# SPDX-License-Identifier: Apache-2.0
"""Signs of life, kept beside the claims: of the guard, and of actions that take long.

StackStorm shows an action as running for ever when its action runner was killed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Callable, NamedTuple

from edgetune.base import clock
from edgetune.base.documents.reading import check_is, read_document
from edgetune.base.errors import EdgetuneError
from edgetune.rollout.store.texts import Texts, open_texts
from edgetune.site.config import Config

GUARD = "guard"
EVERY = 20.0
"""Seconds between two of an action; one that ends sooner gives none."""
SILENT = 60.0
"""Seconds without one, after which an action is dead."""
_KEPT = 30 * 86400
"""Seconds."""


class Heartbeat(NamedTuple):
    """Epoch seconds, the problem that was met or "", and by host how many sweeps in a row found it
    silent, and how many are to leave it out now."""

    time: float
    problem: str = ""
    silent: Mapping[str, tuple[int, int]] = MappingProxyType({})


class Heartbeats:
    """The last one by name; every call raises StoreError when the backend fails."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    def beat(self, name: str, heartbeat: Heartbeat) -> None:
        """Keep it instead of the one before."""
        document = {**heartbeat._asdict(), "silent": dict(heartbeat.silent)}
        self._texts.put(_key(name), json.dumps(document))

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
        return Heartbeat(float(str(at)), str(problem), _silent(key, kept.get("silent", {})))


def _silent(key: str, value: object) -> dict[str, tuple[int, int]]:
    check_is(key, "silent", isinstance(value, dict), "is no mapping")
    counts = dict(value) if isinstance(value, dict) else {}
    for pair in counts.values():
        good = isinstance(pair, list) and [type(each) for each in pair] == [int, int]
        check_is(key, "silent", good and min(pair) >= 0, "counts no sweeps")
    return {str(host): (pair[0], pair[1]) for host, pair in counts.items()}


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
