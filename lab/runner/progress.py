# SPDX-License-Identifier: Apache-2.0
"""What a person sees while an action runs: a line for each thing that happened, and what goes on.

Rollouts are found by the ids that executions take and return; what is shown of one is the story
that its record tells. Steps that belong to no rollout have a line of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Optional

from edgetune.base import clock
from edgetune.base.durations import roughly
from edgetune.base.errors import EdgetuneError
from lab.runner.display import message_of
from lab.runner.execution import Execution, Listener
from lab.runner.screen import Screen
from lab.runner.story import Row, Story

__all__ = ["OpenStory", "Progress", "rollouts_of", "row_text"]

OpenStory = Callable[[str], Optional[Story]]

_EVERY_SECONDS = 1.0
_ROLLOUT = "rollout"


class Progress(Listener):
    """Shows an execution and the rollouts that it has in hand, until it is closed."""

    def __init__(self, screen: Screen, open_story: OpenStory) -> None:
        self._screen = screen
        self._open_story = open_story
        self._began = clock.wall()
        self._running: list[Execution] = []
        self._shown: dict[str, set[Row]] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def started(self, execution: Execution) -> None:
        with self._lock:
            self._running.append(execution)
            self._meet(execution)
            if not self._ticker.ident:
                self._ticker.start()

    def finished(self, execution: Execution) -> None:
        with self._lock:
            self._running.remove(execution)
            self._meet(execution)
        said = message_of(execution)
        if said and _stands_alone(execution):
            self._screen.line(row_text(Row(clock.wall(), str(execution.task), said)))

    def close(self) -> None:
        """Show what has happened until now, and nothing more, however often it is called."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._ticker.ident:
            self._ticker.join()
        self._look()
        self._screen.live("")

    def _tick(self) -> None:
        while not self._closed.wait(_EVERY_SECONDS):
            self._look()

    def _look(self) -> None:
        """What a store does not tell now is shown a second later, or at the end."""
        with suppress(EdgetuneError):
            self._show()

    def _show(self) -> None:
        stories = list(self._stories())
        for story in stories:
            self._show_news(story, several=len(stories) > 1)
        at_work = [story for story in stories if not story.ended]
        self._screen.live(_going_on(at_work[-1]) if at_work else self._waiting())

    def _stories(self) -> Iterator[Story]:
        with self._lock:
            known = list(self._shown)
        for rollout in known:
            story = self._open_story(rollout)
            if story:
                yield story

    def _show_news(self, story: Story, several: bool) -> None:
        shown = self._shown[story.head.id]
        for row in story.rows:
            if row in shown or row.at < self._began:
                continue
            shown.add(row)
            where = f"{story.head.pop}: " if several else ""
            self._screen.line(row_text(row, where), row.colour)

    def _waiting(self) -> str:
        """The innermost step that runs, and for how long."""
        with self._lock:
            running = self._running[-1:]
        names = [f"{each.task or each.action.ref.partition('.')[2]}" for each in running]
        passed = roughly(round(clock.wall() - running[0].started)) if running else ""
        return f"  [{passed}] {names[0]}" if names else ""

    def _meet(self, execution: Execution) -> None:
        for rollout in _named(execution):
            self._shown.setdefault(rollout, set())


def rollouts_of(execution: Execution) -> Iterator[str]:
    """The ids of rollouts that an execution and those which it started name."""
    yield from _named(execution)
    for child in execution.children:
        yield from rollouts_of(child)


def row_text(row: Row, where: str = "") -> str:
    """A line: the time of day, what, and how."""
    at = time.strftime("%H:%M:%S", time.localtime(row.at))
    return f"{at}  {row.what:<13}  {where}{row.text}"


def _going_on(story: Story) -> str:
    return f"  [{story.passed}] {story.present}"


def _named(execution: Execution) -> Iterator[str]:
    """Rollouts that its parameters or its result name."""
    for values in (execution.parameters, execution.payload):
        rollout = values.get(_ROLLOUT) if isinstance(values, dict) else None
        if rollout and isinstance(rollout, str):
            yield rollout


def _stands_alone(execution: Execution) -> bool:
    """Whether it is a step of the outermost workflow that no record of a rollout tells of.

    Why one failed is said at the end.
    """
    outermost = len(list(execution.ancestors)) == 1
    return outermost and execution.status == "succeeded" and not any(_named(execution))
