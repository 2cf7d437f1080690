# SPDX-License-Identifier: Apache-2.0
"""One action or workflow being run, as `st2 execution get` would describe it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from edgetune.base import clock
from lab.runner.metadata import Action

__all__ = ["FINISHED", "Execution", "Listener", "new_id"]

FINISHED = frozenset({"succeeded", "failed", "timeout", "abandoned", "canceled"})

_MASK = "********"


def new_id() -> str:
    """24 hexadecimal digits that sort by time, in the form of StackStorm's ids."""
    return f"{int(clock.wall()):08x}{os.urandom(8).hex()}"


@dataclass(eq=False)
class Execution:
    """`parameters` are those recorded; `context` is what StackStorm calls action_context."""

    action: Action
    parameters: dict[str, Any]
    context: dict[str, Any]
    parent: Execution | None = None
    task: str | None = None
    item: int | None = None
    id: str = field(default_factory=new_id)
    status: str = "requested"
    result: Any = None
    started: float = field(default_factory=clock.wall)
    ended: float | None = None
    children: list[Execution] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return (self.ended or clock.wall()) - self.started

    @property
    def payload(self) -> Any:
        """What the action returned, or the workflow's output, without the runner's envelope."""
        if not isinstance(self.result, dict):
            return self.result
        return self.result.get("result" if self.action.runner == "python-script" else "output")

    @property
    def ancestors(self) -> Iterator[Execution]:
        above = self.parent
        while above is not None:
            yield above
            above = above.parent

    def finish(self, status: str, result: Any) -> None:
        self.status, self.result, self.ended = status, result, clock.wall()

    def document(self) -> dict[str, Any]:
        """The execution and those it started, in order of their start; secrets are masked."""
        place = {"task": self.task, "item": self.item}
        return {
            "id": self.id,
            **{name: value for name, value in place.items() if value is not None},
            "action": {"ref": self.action.ref},
            "parameters": {
                name: _MASK if name in self.action.secrets else value
                for name, value in self.parameters.items()
            },
            "status": self.status,
            "result": self.result,
            "start_timestamp": _timestamp(self.started),
            "end_timestamp": None if self.ended is None else _timestamp(self.ended),
            "children": [child.document() for child in self.children],
        }


class Listener:
    """Is told what happens, from several threads; does nothing."""

    def started(self, execution: Execution) -> None:
        """An action's process or a workflow starts (a task's delay is over)."""

    def finished(self, execution: Execution) -> None:
        """It has its final status and result."""


def _timestamp(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, tz=timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
