# SPDX-License-Identifier: Apache-2.0
"""Between StackStorm's actions and the library: errors become results, texts become safe."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Callable

from edgetune.errors import EdgetuneError
from edgetune.report.chat import chat_text
from edgetune.rollout.site import Site
from edgetune.texts import one_line, printable

Result = tuple[bool, dict[str, Any]]


def run_step(
    step: Callable[..., dict[str, Any]], config: Mapping[str, Any], **parameters: Any
) -> Result:
    """Run a step of the library for an action.

    ``(True, result)``, or ``(False, {"error": one line, "reason": word, ...})``: a step that did
    part of its work answers with ``"failed": [hosts]`` and is a failure, too; one with a ``text``
    answers with ``chat`` as well, as much of it as a message in chat holds. Parameters that are
    None (StackStorm's word for "not given") take the step's default; texts are one line.
    """
    try:
        given = {name: _given(value) for name, value in parameters.items() if value is not None}
        result = step(Site(config or {}), **given)
    except EdgetuneError as error:
        return False, {"error": safe_text(one_line(str(error))), "reason": error.reason}
    if "message" in result:
        result = {**result, "message": one_line(result["message"])}
    result = safe(result)
    if "text" in result:
        result["chat"] = chat_text(result["text"], os.environ.get("ST2_ACTION_EXECUTION_ID", ""))
    return not result.get("failed"), result


def _given(value: Any) -> Any:
    return one_line(value) if isinstance(value, str) else value


def safe(value: Any) -> Any:
    """The same value with every text made harmless for a workflow."""
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, Mapping):
        return {safe_text(str(key)): safe(below) for key, below in value.items()}
    if isinstance(value, (list, tuple)):
        return [safe(below) for below in value]
    return value


def safe_text(text: str) -> str:
    """Fit for a workflow and a terminal.

    StackStorm renders every input of a task as Jinja, also what a device once said, and Orquesta
    evaluates what an expression led to once more. hubot cuts an answer in two at ``{~}``.
    """
    return re.sub(r"\{(?=[{%#~])|<(?=%)", r"\g<0> ", printable(text))
