# SPDX-License-Identifier: Apache-2.0
"""Keeps tests without a mark from starting processes: `make check` leaves tests out by their marks.

An audit hook sees every start, whichever module asks for it. A hook cannot be removed, so it is
added once for each process of pytest and goes by the test that runs.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

MARKS = ("lab", "machines", "processes")
"""The marks of tests that may start processes."""

STARTS = frozenset(
    ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")
)
"""The audit events of a start; https://docs.python.org/3/library/audit_events.html has all."""


class UnmarkedStart(Exception):
    """A test without a mark started a process; the text names the test and the marks."""


class Guard:
    """Refuses starts while a test without one of ``MARKS`` runs."""

    def __init__(self) -> None:
        self._test: str | None = None
        self.refused: str | None = None
        """The sentence of the last refusal, since the code under test may have swallowed it."""

    def watch(self) -> None:
        """Add the audit hook to this process, once and for all."""
        sys.addaudithook(lambda event, arguments: self._refuse(event, arguments))

    @contextmanager
    def over(self, item: pytest.Item) -> Generator[None, None, None]:
        """Refuse starts in the body, unless the test is marked."""
        marked = any(item.get_closest_marker(mark) for mark in MARKS)
        self._test = None if marked else item.nodeid
        self.refused = None
        try:
            yield
        finally:
            self._test = None

    def _refuse(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._test is None or event not in STARTS:
            return
        self.refused = (
            f"{self._test} starts a process ({event} of {arguments[:1]}) and is not marked: "
            f"mark it with one of pytest.mark.{', pytest.mark.'.join(MARKS)}"
        )
        raise UnmarkedStart(self.refused)
