# SPDX-License-Identifier: Apache-2.0
"""StackStorm's running executions of the pack, and which of them are dead.

An action whose action runner was killed is shown as running for ever, and so is its workflow.
The process of an action gives signs of life (see ``heartbeat``): one without them is dead. A
workflow is lost when its workflow engine was killed between two actions: nothing in it goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from edgetune import PACK
from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.stackstorm import PartOfWorkflow, RunningExecution
from edgetune.base.errors import StoreError
from edgetune.rollout.store.heartbeat import SILENT, Heartbeats
from edgetune.rollout.store.stackstorm import StackStorm, entries

PAGE = 100
_MOST = 10 * PAGE
_FIELDS = "id,action,runner,parent,parameters,start_timestamp"
_RECENT = {"limit": "20", "include_attributes": "id,status,end_timestamp"}
_COMPLETED = ("succeeded", "failed", "timeout", "canceled", "abandoned")
_DEAD = "its process gives no sign of life any more"


@dataclass(frozen=True)
class Execution:
    """One that is running; ``parent`` is "" for one that a person or a rule began, ``started`` in
    epoch seconds."""

    id: str
    action: str
    parent: str
    parameters: Mapping[str, object]
    started: float
    is_workflow: bool


class Executions:
    """Those that run, as they were when they were first asked for."""

    def __init__(self, api: StackStorm, heartbeats: Heartbeats) -> None:
        self._api = api
        self._running = {each.id: each for each in _running(api)}
        self.dead = [each for each in self._actions() if _is_dead(each, heartbeats)]

    def ancestors(self, execution: Execution) -> Iterator[str]:
        """The workflows that an execution is a part of, the nearest first."""
        parent = execution.parent
        while parent:
            yield parent
            above = self._running.get(parent)
            parent = above.parent if above else ""

    @property
    def dead_workflows(self) -> set[str]:
        """Those that wait for nothing but dead actions."""
        dead = {each.id for each in self.dead}
        waited_for = (each for each in self._actions() if each.id not in dead)
        return self._above(self.dead) - self._above(waited_for)

    def lost_workflows(self, idle: float) -> list[tuple[Execution, set[str]]]:
        """Workflows of the pack, of those that are no part of another one, in which nothing is
        under way and nothing ended within ``idle`` s; each with the ids of all that runs of it."""
        parts: dict[str, set[str]] = {}
        for each in self._running.values():
            whole = [each.id, *self.ancestors(each)]
            parts.setdefault(whole[-1], set()).add(each.id)
        own = (e for e in self._running.values() if e.action.startswith(f"{PACK}."))
        return [
            (each, parts[each.id])
            for each in own
            if not each.parent
            and all(self._running[part].is_workflow for part in parts[each.id])
            and all(self._waits_in_vain(part, idle) for part in parts[each.id])
        ]

    def _waits_in_vain(self, workflow: str, idle: float) -> bool:
        query = {**_RECENT, "parent": workflow}
        last = self._running[workflow].started
        for part in entries(PartOfWorkflow, self._api.call("GET", "/executions", params=query)):
            if part.id in self._running:
                continue
            if part.status not in _COMPLETED or not part.end_timestamp:
                return False
            last = max(last, _seconds(part.end_timestamp))
        return clock.wall() - last > idle

    def cancel(self, workflow: Execution) -> None:
        """Let StackStorm cancel a workflow."""
        self._api.call("DELETE", f"/executions/{workflow.id}", (400,))

    def abandon(self, execution: Execution) -> None:
        """Let StackStorm know that it is dead; its workflow goes on from there as it can."""
        body = {"status": "abandoned", "result": {"error": _DEAD}}
        self._api.call("PUT", f"/executions/{execution.id}", (400,), document=body)

    def _actions(self) -> Iterator[Execution]:
        own = (each for each in self._running.values() if each.action.startswith(f"{PACK}."))
        return (each for each in own if not each.is_workflow)

    def _above(self, executions: Iterable[Execution]) -> set[str]:
        return {above for each in executions for above in self.ancestors(each)}


def _running(api: StackStorm) -> list[Execution]:
    found: list[Execution] = []
    for offset in range(0, _MOST, PAGE):
        query = {"status": "running", "include_attributes": _FIELDS}
        page = {"limit": str(PAGE), "offset": str(offset)}
        answer = api.call("GET", "/executions", params={**query, **page})
        rows = entries(RunningExecution, answer)
        found += map(_execution, rows)
        if len(rows) < PAGE:
            return found
    raise StoreError(f"StackStorm runs more than {_MOST} executions")


def _execution(row: RunningExecution) -> Execution:
    return Execution(
        id=row.id,
        action=row.action.ref,
        parent=row.parent or "",
        parameters=row.parameters or {},
        started=_seconds(row.start_timestamp),
        is_workflow=row.runner.name == "orquesta",
    )


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def _is_dead(execution: Execution, heartbeats: Heartbeats) -> bool:
    now = clock.wall()
    if now - execution.started <= SILENT:
        return False
    last = heartbeats.last(execution.id)
    return now - (last.time if last else execution.started) > SILENT
