# SPDX-License-Identifier: Apache-2.0
"""StackStorm's API (version 1), as an action calls it, and which of its executions are dead.

An action whose action runner was killed is shown as running for ever, and so is its workflow.
The process of an action gives signs of life (see ``heartbeat``): one without them is dead. A
workflow is lost when its workflow engine was killed between two actions: nothing in it goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

from edgetune import PACK
from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import taken
from edgetune.base.documents.stackstorm import (
    COMPLETED,
    ActionRef,
    OwningExecution,
    PartOfWorkflow,
    RunningExecution,
)
from edgetune.base.errors import NoAnswerError, StoreError
from edgetune.net.http import Answer, NetError, Service, UnreachedError, query_of
from edgetune.rollout.store.heartbeat import SILENT, Heartbeats

Kind = TypeVar("Kind")

TIMEOUT = 15.0
"""Seconds for one answer."""
PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Seconds before what may be asked again is asked again."""
AWAY = (500, 502, 503, 504)
"""Answers of a StackStorm whose database is away, and of a proxy whose StackStorm is."""
NO_CONTENT = 204
"""The answer where something was deleted."""
_LIMIT = 64 << 20


class StackStorm:
    """The API that an environment names, with an API key or else with the action's own token.

    gunicorn closes a connection that is idle for two seconds, maybe as the next request is sent;
    and services are restarted. So a read is tried again after each of ``PAUSES``. Any other request
    is tried again only if it never reached StackStorm. StoreError without a URL.
    """

    def __init__(self, environment: Mapping[str, str], api_key: str | None = None) -> None:
        url = environment.get("ST2_ACTION_API_URL") or environment.get("ST2_API_URL")
        if not url:
            raise StoreError("records: st2 is configured, but ST2_ACTION_API_URL is not set")
        self.url = url.rstrip("/")
        if not self.url.endswith("/v1"):
            self.url += "/v1"
        token = environment.get("ST2_ACTION_AUTH_TOKEN") or environment.get("ST2_AUTH_TOKEN") or ""
        login = {"St2-Api-Key": api_key} if api_key else {"X-Auth-Token": token} if token else {}
        self._service = Service(self.url, login, login.values(), limit=_LIMIT)

    def call(
        self,
        method: str,
        path: str,
        none: Sequence[int] = (),
        params: Mapping[str, str] | None = None,
        document: object = None,
    ) -> Any:
        """The answer's JSON to a document; None for a status in ``none``.

        NoAnswerError if StackStorm did not answer, StoreError if it refused.
        """
        where, path = f"{method} {path}", path + query_of(params or {})
        for pause in (*PAUSES, None):
            may_repeat = method == "GET"
            try:
                ends = clock.monotonic() + TIMEOUT
                answer = self._service.tell(method, path, ends, document)
                if answer.status in none:
                    return None
                if answer.status not in AWAY:
                    return self._document(where, answer)
                problem = f"{answer.status} {answer.reason}"
            except NetError as error:
                problem = str(error)
                may_repeat |= isinstance(error, UnreachedError)
            if pause is None or not may_repeat:
                raise NoAnswerError(f"{where}: {problem}")
            clock.sleep(pause)
        raise AssertionError("the last pause is None")

    def close(self) -> None:
        """Close the connection to the API."""
        self._service.close()

    def _document(self, where: str, answer: Answer) -> Any:
        if not 200 <= answer.status < 300:
            text = answer.body.decode("utf-8", "replace")
            shown = self._service.shown(f"{answer.status} {answer.reason}: {text}")
            raise StoreError(f"{where}: {shown}")
        if answer.status == NO_CONTENT:
            return None
        try:
            return answer.document()
        except ValueError:
            raise StoreError(f"{where}: its answer is no JSON") from None


def entry(kind: type[Kind], answer: Any) -> Kind:
    """What StackStorm answered, as a document of this kind; StoreError where it lacks a part."""
    try:
        return taken(kind, answer)
    except (TypeError, AttributeError) as error:
        raise StoreError(f"StackStorm's answer is no {kind.__name__}: {error}") from None


def entries(kind: type[Kind], answer: Any) -> list[Kind]:
    """The same of a list; StoreError where it is none."""
    if not isinstance(answer, list):
        raise StoreError(f"StackStorm's answer is no list of {kind.__name__}")
    return [entry(kind, each) for each in answer]


PAGE = 100
_MOST = 10 * PAGE
_FIELDS = "id,action,runner,parent,parameters,start_timestamp"
_OWNER = {"include_attributes": "id,action,status,context"}
_RECENT = {"limit": "20", "include_attributes": "id,status,end_timestamp"}
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
        self._owners: dict[str, OwningExecution | None] = {}

    def owner(self, execution: str) -> OwningExecution | None:
        """How an execution stands, whatever its status; None where StackStorm has none of that id,
        or does not show it to this user. NoAnswerError where it does not answer."""
        running = self._running.get(execution)
        if running:
            return OwningExecution(execution, ActionRef(running.action), "running")
        if execution not in self._owners:
            path = f"/executions/{quote(execution, safe='')}"
            answer = self._api.call("GET", path, (400, 403, 404), params=_OWNER)
            self._owners[execution] = None if answer is None else entry(OwningExecution, answer)
        return self._owners[execution]

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
        ours = (e for e in self._running.values() if e.action.startswith(f"{PACK}."))
        return [
            (each, parts[each.id])
            for each in ours
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
            if part.status not in COMPLETED or not part.end_timestamp:
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
        ours = (each for each in self._running.values() if each.action.startswith(f"{PACK}."))
        return (each for each in ours if not each.is_workflow)

    def _above(self, executions: Iterable[Execution]) -> set[str]:
        return {above for each in executions for above in self.ancestors(each)}


def _running(api: StackStorm) -> list[Execution]:
    executions: list[Execution] = []
    for offset in range(0, _MOST, PAGE):
        query = {"status": "running", "include_attributes": _FIELDS}
        page = {"limit": str(PAGE), "offset": str(offset)}
        answer = api.call("GET", "/executions", params={**query, **page})
        rows = entries(RunningExecution, answer)
        executions += map(_execution, rows)
        if len(rows) < PAGE:
            return executions
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
