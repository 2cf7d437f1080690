# SPDX-License-Identifier: Apache-2.0
"""Where the rounds of PoPs are kept: beside the claims, in Redis or SQLite; and what steps answer.

They are too large for StackStorm's datastore, which tells its triggers of each value.
"""

from __future__ import annotations

from typing import TypedDict

from edgetune.base.documents.rounds import Rounds, read_rounds
from edgetune.rollout.store.heartbeat import Texts, open_texts
from edgetune.site.config import Config


class KeptRounds:
    """The rounds of each PoP; every call raises StoreError when the backend fails."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    def get(self, pop: str) -> Rounds | None:
        """Those of a PoP, or None; DamagedError if what is kept is none."""
        kept = self._texts.get(pop)
        return None if kept is None else read_rounds(pop, kept)

    def put(self, rounds: Rounds) -> None:
        """Keep them instead of those before."""
        self._texts.put(rounds.pop, rounds.document())


def open_rounds(config: Config) -> KeptRounds:
    """Those of a configuration's ``coordination``; Redis has them for as long as samples."""
    kept = int(config.sample_retention)
    return KeptRounds(open_texts(config, "congestion", "pop", kept, "edgetune:congestion:"))


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
