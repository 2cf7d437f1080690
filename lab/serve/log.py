# SPDX-License-Identifier: Apache-2.0
"""What `edgetune serve` prints: a line for each thing that matters, or for everything."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TextIO

from lab.runner.display import message_of
from lab.runner.execution import Execution, Listener
from lab.runner.screen import Screen, printable
from lab.runner.story import Row, StoryTeller
from lab.serve.rules import TIMERS, Rule

__all__ = ["Log", "News"]

Clock = Callable[[], datetime]


class Log(Listener):
    """A line for each trigger instance, enforcement and execution that a rule asked for."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._screen = Screen(stream)
        self._clock = clock

    def line(self, kind: str, text: str) -> None:
        """`kind` is serving, trigger, rule, execution, rollout or sensor."""
        self._screen.entry(f"{self._clock().astimezone():%H:%M:%S} {kind:9} {printable(text)}")

    def trigger(self, text: str) -> None:
        """A trigger instance came that a rule is for, or that a sensor sent."""
        self.line("trigger", text)

    def fired(self, rule: Rule, execution: Execution) -> None:
        """A rule asked for an execution."""
        self.line("rule", f"{rule.name} -> {execution.action.ref} {execution.id}")

    def finished(self, execution: Execution) -> None:
        if execution.parent is None:
            done = f"{execution.status} after {execution.seconds:.1f} s"
            line = f"{execution.action.ref} {execution.id} {done}  {message_of(execution)}"
            self.line("execution", line.rstrip())

    def look(self) -> None:
        """Is called now and then."""


class News(Log):
    """What matters of that: which rule started what, what failed, and how rollouts go on.

    A rule of a timer starts its action again and again. What comes of it shows in the rollouts.
    """

    def __init__(self, stream: TextIO, clock: Clock, stories: StoryTeller) -> None:
        super().__init__(stream, clock)
        self._stories = stories
        self._began = clock().timestamp()
        self._told: set[Row] = set()
        self._quiet: set[str] = set()

    def trigger(self, text: str) -> None:
        """The rule that it fires is told."""

    def fired(self, rule: Rule, execution: Execution) -> None:
        if rule.trigger in TIMERS:
            self._quiet.add(execution.id)
            return
        given = execution.parameters.items()
        about = [f"{name}={value}" for name, value in given if isinstance(value, str) and value]
        self.line("rule", f"{rule.name} starts {execution.action.name} {' '.join(about)}".rstrip())

    def finished(self, execution: Execution) -> None:
        if execution.parent is not None:
            return
        well = execution.status == "succeeded"
        if not well or execution.id not in self._quiet:
            told = f"{execution.action.name} {execution.status}: {message_of(execution)}"
            self.line("execution", told)
        self._quiet.discard(execution.id)

    def look(self) -> None:
        """Tell what became of rollouts since the last time."""
        for story in self._stories.all():
            for row in story.milestones:
                if row.at >= self._began and row not in self._told:
                    self._told.add(row)
                    self.line("rollout", f"{story.head.pop} {row.what}: {row.text}")
