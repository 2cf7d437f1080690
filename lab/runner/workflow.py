# SPDX-License-Identifier: Apache-2.0
"""One workflow: a loop that asks Orquesta's conductor what is next and tells it what has ended.

Only the thread of the loop touches its conductor. Actions and sub-workflows run in threads of their
own and report through a queue. Functions that StackStorm adds to Orquesta (`task()`, `st2kv()`) do
not exist here.
"""

from __future__ import annotations

import queue
import threading
from typing import Any, Protocol

from lab.runner.execution import FINISHED, Execution, new_id
from lab.runner.inspection import inspect
from lab.runner.metadata import MetadataError, Pack
from lab.runner.orquesta_compat import conducting, events, specs, statuses
from lab.runner.parameters import ParameterError

__all__ = ["Workflow"]

Values = dict[str, Any]
Task = dict[str, Any]

# Orquesta's expression parsers are shared by all workflows of a process and are not thread-safe.
_ORQUESTA = threading.RLock()

_CANCEL_POLL_SECONDS = 0.1


class Engine(Protocol):
    """What runs the tasks."""

    pack: Pack
    canceled: threading.Event

    def request(self, name: str, given: Values, **place: Any) -> Execution:
        """An execution whose parameters were checked."""

    def execute(self, execution: Execution) -> None:
        """Run one to its end."""


class Workflow:
    """Conducts one execution whose action is a workflow."""

    def __init__(self, engine: Engine, execution: Execution, inputs: Values) -> None:
        self._engine = engine
        self._execution = execution
        self._inputs = inputs
        self._conductor: Any = None
        self._running = 0
        self._ended: queue.SimpleQueue[tuple[Task, Execution]] = queue.SimpleQueue()
        self._item_results: dict[tuple[str, int], list[Any]] = {}

    def conduct(self) -> tuple[str, Values]:
        """Run to the end; returns status and {"output": ...}, with "errors" unless it succeeded."""
        errors = self._prepare()
        if errors:
            return "failed", {"output": None, "errors": errors}
        with _ORQUESTA:
            self._request_status(statuses.RUNNING)
            self._start_ready_tasks()
        while self._running:
            self._await_one()
        return self._outcome()

    def _prepare(self) -> list[Values]:
        """Read and inspect the workflow; returns why it cannot start."""
        context = self._context()
        with _ORQUESTA:
            try:
                spec = specs.instantiate(self._execution.action.file.read_text(encoding="utf-8"))
                errors = inspect(spec, context, self._engine.pack)
            except Exception as error:
                return [{"message": " ".join(f"{type(error).__name__}: {error}".split())}]
            if not errors:
                self._conductor = conducting.WorkflowConductor(
                    spec, inputs=self._inputs, context=context
                )
        return errors

    def _context(self) -> Values:
        """What workflows know as `ctx(st2)` and `ctx(parent)`."""
        execution = self._execution
        st2 = {
            "action_execution_id": execution.id,
            "workflow_execution_id": new_id(),
            "user": execution.context["user"],
            "pack": execution.context["pack"],
            "action": execution.action.ref,
            "runner": execution.action.runner,
        }
        return {"st2": st2, "parent": execution.context}

    def _request_status(self, status: str) -> None:
        """Ask for a status unless the workflow has already ended, say because of a bad `vars`."""
        if self._conductor.get_workflow_status() not in statuses.COMPLETED_STATUSES:
            self._conductor.request_workflow_status(status)

    def _await_one(self) -> None:
        """Take the end of one action, or notice that the run was canceled."""
        try:
            task, execution = self._ended.get(timeout=_CANCEL_POLL_SECONDS)
        except queue.Empty:
            task, execution = {}, None
        with _ORQUESTA:
            if self._engine.canceled.is_set() and self._status not in statuses.CANCEL_STATUSES:
                self._request_status(statuses.CANCELED)
            if execution is not None:
                self._running -= 1
                self._advance(task, execution)

    @property
    def _status(self) -> str:
        status: str = self._conductor.get_workflow_status()
        return status

    def _advance(self, task: Task, execution: Execution) -> None:
        try:
            self._report(task, execution.status, execution.result, execution.item)
            self._start_ready_tasks()
        except Exception as error:  # such as a `retry: when` that cannot be evaluated
            self._fail(error, task)

    def _start_ready_tasks(self) -> None:
        tasks = self._conductor.get_next_tasks()
        while tasks:
            for task in tasks:
                self._mark_running(task)
            for task in tasks:
                try:
                    self._start(task)
                except (MetadataError, ParameterError) as error:
                    # On StackStorm, too, a bad input fails the workflow, not the task.
                    self._fail(error, task)
                    return
            tasks = self._conductor.get_next_tasks()

    def _fail(self, error: Exception, task: Task) -> None:
        self._request_status(statuses.FAILED)
        self._conductor.log_error(error, task_id=task["id"], route=task["route"])

    def _mark_running(self, task: Task) -> None:
        for item in [action.get("item_id") for action in task["actions"]] or [None]:
            self._report(task, statuses.RUNNING, None, item)

    def _start(self, task: Task) -> None:
        if task["spec"].action is None or not task["actions"]:
            self._report(task, statuses.SUCCEEDED, None, None)
            return
        for action in task["actions"]:
            self._start_action(task, action)

    def _start_action(self, task: Task, action: Values) -> None:
        item = action.get("item_id")
        execution = self._engine.request(
            action["action"],
            action["input"] or {},
            context=self._child_context(task, item),
            parent=self._execution,
            task=task["id"],
            item=item,
        )
        self._execution.children.append(execution)
        self._running += 1
        arguments = (task, execution, _delay(task, item))
        threading.Thread(target=self._run, args=arguments, name=task["id"], daemon=True).start()

    def _child_context(self, task: Task, item: int | None) -> Values:
        own = self._execution
        shared = {"user": own.context["user"], "pack": own.context["pack"]}
        place = {"task_name": task["id"], "task_id": task["id"], "task_route": task["route"]}
        return {
            "user": own.context["user"],
            "parent": {"execution_id": own.id, **shared},
            "orquesta": place if item is None else {**place, "item_id": item},
        }

    def _run(self, task: Task, execution: Execution, delay: int) -> None:
        if delay and self._engine.canceled.wait(delay):
            execution.finish("canceled", None)
        else:
            self._engine.execute(execution)
        self._ended.put((task, execution))

    def _report(self, task: Task, status: str, result: Any, item: int | None) -> None:
        key = (task["id"], task["route"])
        if item is None:
            event = events.ActionExecutionEvent(status, result=result)
        else:
            results = self._item_results.setdefault(key, [None] * task["items_count"])
            results[item] = result
            event = events.TaskItemActionExecutionEvent(
                item, status, result=result, accumulated_result=list(results)
            )
        state = self._conductor.update_task_state(*key, event)
        if state["status"] not in statuses.ACTIVE_STATUSES:
            self._item_results.pop(key, None)
        if self._status in statuses.COMPLETED_STATUSES:
            self._conductor.render_workflow_output()

    def _outcome(self) -> tuple[str, Values]:
        conductor = self._conductor
        with _ORQUESTA:
            if self._status not in FINISHED:
                # StackStorm would wait for ever, for instance for a join that cannot be reached.
                conductor.log_error(RuntimeError(f"no task is left to run, still {self._status}"))
                conductor.request_workflow_status(statuses.FAILED)
            conductor.render_workflow_output()
            result = {"output": conductor.get_workflow_output() or None}
            if self._status in statuses.ABENDED_STATUSES:
                result["errors"] = conductor.errors
            return self._status, result


def _delay(task: Task, item: int | None) -> int:
    """Seconds; with a concurrency only the first items of a `with` are delayed."""
    delay: int = task.get("delay") or 0
    concurrency = task.get("concurrency")
    return 0 if item is not None and concurrency and item >= concurrency else delay
