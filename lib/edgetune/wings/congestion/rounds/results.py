# SPDX-License-Identifier: Apache-2.0
"""What the steps of a round answer."""

from __future__ import annotations

from typing import TypedDict


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
