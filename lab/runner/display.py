# SPDX-License-Identifier: Apache-2.0
"""The result of an execution as text, why it failed, and the list of all its tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import yaml

from lab.runner.execution import Execution, Listener
from lab.runner.screen import Screen, printable

__all__ = ["TaskList", "errors_of", "message_of", "text_of"]


class TaskList(Listener):
    """Every task: one line when it ends, and of a sub-workflow also when it starts.

    A task that repeats itself (a cycle that waits) has one line on a terminal, which is rewritten;
    elsewhere it gets a new line only when status or message changed.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._lock = threading.Lock()
        self._running: list[Execution] = []
        self._last: tuple[str, str] | None = None
        self._shown: dict[tuple[str, str], tuple[str, str]] = {}

    def started(self, execution: Execution) -> None:
        if execution.parent is None:
            self._screen.line(f"{execution.action.ref} {execution.id}")
            return
        with self._lock:
            if execution.action.runner == "orquesta":
                self._print(execution, "running", execution.action.ref)
            else:
                self._running.append(execution)
            self._show_running()

    def finished(self, execution: Execution) -> None:
        if execution.parent is None:
            done = f"{execution.status} after {execution.seconds:.1f} s"
            self._screen.line(f"{execution.action.ref} {execution.id} {done}")
            return
        with self._lock:
            if execution in self._running:
                self._running.remove(execution)
            self._print(execution, execution.status, message_of(execution))
            self._show_running()

    def _print(self, execution: Execution, status: str, message: str) -> None:
        parent = execution.parent.id if execution.parent else ""
        key, state = (parent, _name(execution)), (status, message)
        repeated = self._last == key and status != "running"
        if not self._screen.is_terminal and repeated and self._shown.get(key) == state:
            return
        seconds = "" if status == "running" else f"{execution.seconds:.1f} s"
        indent = "  " * len(list(execution.ancestors))
        line = f"{indent}{_name(execution):{40 - len(indent)}} {status:10}{seconds:>8}  {message}"
        self._screen.line(line, again=repeated)
        self._last, self._shown[key] = key, state

    def _show_running(self) -> None:
        names = ", ".join(_name(execution) for execution in self._running)
        self._screen.live(f"  ... {names}" if names else "")


def message_of(execution: Execution) -> str:
    """One printable line: the result's `message`, or why it failed."""
    payload = execution.payload if isinstance(execution.payload, dict) else {}
    said = payload.get("message") or payload.get("error")
    if isinstance(said, str):
        return printable(said)
    if execution.status in ("succeeded", "canceled"):
        return ""
    return printable(next(errors_of(execution), ""))


def text_of(execution: Execution, verbose: bool = False) -> str:
    """The result for a reader: its `text` as it is, or else everything as YAML; of what failed
    that only where ``verbose``, since why it failed is said apart."""
    payload = execution.payload
    if payload is None or payload == "None":
        return ""
    if isinstance(payload, dict) and isinstance(payload.get("text"), str):
        return str(payload["text"]).rstrip("\n")
    if execution.status != "succeeded" and not verbose:
        return ""
    dumped = yaml.safe_dump(
        payload, sort_keys=False, allow_unicode=True, default_flow_style=False, width=100
    )
    return dumped.replace("\n...\n", "\n").rstrip("\n")


def errors_of(execution: Execution) -> Iterator[str]:
    """Why it did not succeed; of a workflow, each error with its file and task or path."""
    result = execution.result if isinstance(execution.result, dict) else {}
    if "error" in result:
        yield printable(str(result["error"]))
    if execution.action.runner == "orquesta":
        file = execution.action.file.name
        errors = result.get("errors") or []
        # The engine command `fail` adds an entry of its own to the one that led to it.
        reasons = [entry for entry in errors if entry.get("task_id") != "fail"]
        if errors and not reasons:
            yield f"{file}: {message_of(execution) or 'it was told to fail'}"
        for error in reasons:
            place = error.get("spec_path") or error.get("task_id") or "workflow"
            yield f"{file}: {place}: {_reason(execution, error)}"
    elif result.get("stderr"):
        yield printable(str(result["stderr"]).strip().splitlines()[-1])


def _reason(execution: Execution, error: dict[str, Any]) -> str:
    """Orquesta refers to a failed task's result; the task's own reason says more."""
    children = [child for child in execution.children if child.task == error.get("task_id")]
    failed = [child for child in children if child.status not in ("succeeded", "canceled")]
    if "result" in error and failed:
        return message_of(failed[-1]) or failed[-1].status
    return printable(str(error.get("message")))


def _name(execution: Execution) -> str:
    item = "" if execution.item is None else f"[{execution.item}]"
    return f"{execution.task}{item}"
