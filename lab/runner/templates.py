# SPDX-License-Identifier: Apache-2.0
"""Jinja in parameters, as StackStorm renders it: each value may refer to the others.

Of StackStorm's filters only the JSON ones exist here, and there is no `st2kv`.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from importlib import import_module
from typing import Any

__all__ = ["RenderingError", "is_template", "render_together"]


class RenderingError(ValueError):
    """A template cannot be rendered; the message is one line that names the parameter."""


def is_template(value: Any) -> bool:
    """Whether StackStorm would render the value, or something inside of it."""
    text = str(value) if isinstance(value, (dict, list)) else value
    return isinstance(text, str) and ("{{" in text or "{%" in text)


def render_together(templates: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Render templates that may use each other and the values; raises RenderingError."""
    rendering = _Rendering(templates, values)
    return {name: rendering.value_of(name) for name in templates}


class _Rendering:
    def __init__(self, templates: dict[str, Any], values: dict[str, Any]) -> None:
        self._templates = templates
        self._known = dict(values)
        self._open: list[str] = []

    def value_of(self, name: str) -> Any:
        if name in self._open:
            raise RenderingError(f"parameters refer to themselves: {' -> '.join(self._open)}")
        if name not in self._known:
            self._open.append(name)
            self._known[name] = self._render(name)
            self._open.pop()
        return self._known[name]

    def _render(self, name: str) -> Any:
        if name not in self._templates:
            raise RenderingError(f'a parameter refers to "{name}", which does not exist')
        template = self._templates[name]
        names = _names_in(template) if is_template(template) else None
        if names is None:
            return template
        context = {used: self.value_of(used) for used in names}
        try:
            return _rendered(template, context)
        except Exception as error:
            raise RenderingError(f'parameter "{name}" cannot be rendered: {error}') from error


@lru_cache(maxsize=1)
def _environment() -> Any:
    jinja2: Any = import_module("jinja2")
    sandbox: Any = import_module("jinja2.sandbox")
    environment = sandbox.SandboxedEnvironment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        to_complex=json.dumps, to_json_string=json.dumps, from_json_string=json.loads
    )
    return environment


def _names_in(template: Any) -> set[str] | None:
    """The variables a template uses; None for text that only looks like a template."""
    jinja2: Any = import_module("jinja2")
    meta: Any = import_module("jinja2.meta")
    try:
        names: set[str] = meta.find_undeclared_variables(_environment().parse(str(template)))
    except jinja2.TemplateSyntaxError:
        return None
    return names


def _rendered(template: Any, context: dict[str, Any]) -> Any:
    if isinstance(template, str):
        return _environment().from_string(template).render(context)
    # A string that is nothing but one variable keeps the variable's type.
    text = re.sub(r'"{{([A-Za-z0-9_-]+)}}"', r"{{\1 | to_complex}}", json.dumps(template))
    return json.loads(_environment().from_string(text).render(context))
