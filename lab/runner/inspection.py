# SPDX-License-Identifier: Apache-2.0
"""What StackStorm looks at before a workflow starts: expressions, actions, inputs of each task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lab.runner.metadata import MetadataError, Pack
from lab.runner.orquesta_compat import expressions
from lab.runner.parameters import missing_and_unexpected

__all__ = ["inspect"]

Entry = dict[str, Any]


def inspect(spec: Any, context: dict[str, Any], pack: Pack) -> list[Entry]:
    """Errors with type, message and spec_path (`tasks.plan.input.pop`); empty if it may start."""
    found = spec.inspect(app_ctx=context, raise_exception=False)
    entries = [{**entry, "type": kind} for kind in found for entry in found[kind]]
    for task_name, task in spec.tasks.items():
        entries.extend(_task_errors(f"tasks.{task_name}", task, pack))
    return sorted(entries, key=lambda entry: (str(entry["type"]), str(entry.get("spec_path"))))


def _task_errors(path: str, task: Any, pack: Pack) -> Iterator[Entry]:
    ref = getattr(task, "action", None)
    if not ref or _is_expression(ref):
        return
    if "." not in ref:
        yield _entry(f"{path}.action", f'The action reference "{ref}" names no pack.')
        return
    try:
        action = pack.action(ref)
    except MetadataError as error:
        yield _entry(f"{path}.action", f"{error}")
        return
    given = getattr(task, "input", None) or {}
    if not isinstance(given, dict):
        return
    missing, unexpected = missing_and_unexpected(action, given)
    for name in missing:
        yield _entry(f"{path}.input", f'Action "{ref}" is missing required input "{name}".')
    for name in unexpected:
        yield _entry(f"{path}.input.{name}", f'Action "{ref}" has unexpected input "{name}".')


def _entry(path: str, message: str) -> Entry:
    return {"type": "content", "message": message, "spec_path": path}


def _is_expression(text: str) -> bool:
    return any(kind.has_expressions(text) for kind in expressions.get_evaluators().values())
