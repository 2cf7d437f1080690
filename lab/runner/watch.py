# SPDX-License-Identifier: Apache-2.0
"""`edgetune status --watch`: what the status says, again and again until Ctrl-C."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from inspect import signature
from typing import Any

from edgetune.base import clock
from edgetune.base.errors import EdgetuneError
from edgetune.report.steps.rollout_status import rollout_status
from edgetune.rollout.context import Context
from lab.runner.screen import Screen, printable

__all__ = ["EVERY", "Watch", "columns_of", "status_teller"]

EVERY = 3
"""Seconds between two looks."""
_NARROWEST, _UNBROKEN = 20, 1000
_SPAN = re.compile(r"\b(?:\d+[dhms])+\b")


class Watch:
    """Shows what ``ask`` tells in so many columns: in place on a terminal, elsewhere the lines that
    changed."""

    def __init__(self, screen: Screen, ask: Callable[[int], str]) -> None:
        self._screen, self._ask = screen, ask
        self._lines: set[str] = set()

    def run(self) -> None:
        """Until Ctrl-C; raises what ``ask`` raises at first."""
        with suppress(KeyboardInterrupt):
            known, problem, asked = self._ask(self._columns), "", _clock()
            while True:
                self._show(problem + known)
                clock.sleep(EVERY)
                try:
                    known, problem, asked = self._ask(self._columns), "", _clock()
                except EdgetuneError as error:
                    # That is no news of the rollouts: what was known last stays.
                    problem = f"Not known since {asked}: {printable(str(error))}\n"
        if self._screen.is_terminal:
            print(flush=True)  # the terminal shows ^C in this line

    @property
    def _columns(self) -> int:
        """Where lines are compared none is broken: a span that grows would move the break."""
        return columns_of(self._screen) if self._screen.is_terminal else _UNBROKEN

    def _show(self, text: str) -> None:
        if self._screen.is_terminal:
            self._screen.frame(text, f"{_clock()}, again every {EVERY}s; Ctrl-C ends this")
            return
        for line in self._news(text):
            print(f"{_clock()}  {line}", flush=True)

    def _news(self, text: str) -> Iterator[str]:
        """Lines that were not there before; that time has passed is no news."""
        lines = {" ".join(_SPAN.sub("", line).split()): line for line in text.splitlines()}
        yield from (line for key, line in lines.items() if key and key not in self._lines)
        self._lines = set(lines)


def columns_of(screen: Screen) -> int:
    """How wide a status may be on a terminal."""
    return max(_NARROWEST, screen.width)


def status_teller(
    config: Mapping[str, Any], given: Mapping[str, Any], ended: Callable[[], list[str]]
) -> Callable[[int], str]:
    """Tells what `rollout_status` says to the parameters that were ``given``, each time anew, in so
    many columns.

    ``ended`` tells the executions that have ended by then.
    """
    known = signature(rollout_status).parameters
    asked = {name: value for name, value in given.items() if name in known}

    def tell(columns: int) -> str:
        now = {"columns": columns, **asked, "ended": [*asked.get("ended", []), *ended()]}
        return str(rollout_status(Context(config), **now)["text"])

    return tell


def _clock() -> str:
    return time.strftime("%H:%M:%S", time.localtime(clock.wall()))
