# SPDX-License-Identifier: Apache-2.0
"""What a caller gave to an action, parsed, rendered, cast and checked as StackStorm does.

`from_words` is the command line (`st2 run`), `live` what happens when an execution is requested, on
the command line and again for each task of a workflow, `final` what the runner hands to the action.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from typing import Any, Callable

from edgetune.base.fields import near
from lab.runner.metadata import Action, Schema
from lab.runner.schemas import problems
from lab.runner.templates import RenderingError, is_template, render_together

__all__ = ["ParameterError", "final", "from_words", "live", "missing_and_unexpected"]

Values = dict[str, Any]
Converter = Callable[[Any], Any]


class ParameterError(ValueError):
    """A parameter cannot be used; the message is one line that names it."""


def from_words(action: Action, words: Iterable[str]) -> Values:
    """Parse `key=value` words by the types in the metadata; arrays may be given repeatedly."""
    values: Values = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise ParameterError(f'"{word}" is not of the form key=value')
        _check_known(action, [name])
        kind = action.schema[name].get("type")
        if kind != "array" and name in values:
            raise ParameterError(f'parameter "{name}" is given twice')
        value = _converted(name, kind, text, _PARSERS)
        values[name] = values[name] + value if kind == "array" and name in values else value
    return values


def live(
    action: Action,
    given: Values,
    context: Values,
    config: Values,
    scope: Values | None = None,
) -> Values:
    """The parameters an execution is recorded with: those given, and defaults that are templates.

    `scope` is what templates may use besides, such as the `trigger` of a rule. Raises
    ParameterError for an unknown, missing, immutable, or ill-typed parameter.
    """
    schema = action.schema
    _check_known(action, given)
    templates = {name: _default(schema[name], given.get(name)) for name in schema}
    rendered = _rendered(templates, {**_contexts(context, config), **(scope or {})})
    kept = {
        name: _converted(name, schema[name].get("type"), rendered[name], _CASTS)
        for name in schema
        if name in given or _has_template_default(schema[name])
    }
    _validate(action, kept)
    return kept


def final(
    action: Action, recorded: Values, context: Values, config: Values
) -> tuple[Values, Values]:
    """Parameters of the runner, and of the action: every declared one, None where it has no value.

    Recorded values are not rendered a second time.
    """
    schema = action.schema
    settled = {name: value for name, value in recorded.items() if value is not None}
    defaults = {name: _default(schema[name], None) for name in schema if name not in settled}
    rendered = _rendered(defaults, {**_contexts(context, config), **settled})
    values = {
        name: _converted(name, schema[name].get("type"), {**rendered, **settled}[name], _CASTS)
        for name in schema
    }
    own = {name: value for name, value in values.items() if name not in action.runner_parameters}
    return {name: values[name] for name in action.runner_parameters}, own


def missing_and_unexpected(action: Action, names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Required parameters that are not among the names, and names that are no parameters."""
    schema = action.schema
    required = {name for name in schema if _must_be_given(schema[name])}
    return sorted(required.difference(names)), sorted(set(names).difference(schema))


def _must_be_given(schema: Schema) -> bool:
    return bool(schema.get("required")) and "default" not in schema


def _has_template_default(schema: Schema) -> bool:
    return not schema.get("immutable") and is_template(schema.get("default"))


def _default(schema: Schema, value: Any) -> Any:
    """A parameter given as None, like an immutable one, has its default."""
    return schema.get("default") if value is None or schema.get("immutable") else value


def _contexts(context: Values, config: Values) -> Values:
    return {"action_context": context, "config_context": config}


def _rendered(templates: Values, values: Values) -> Values:
    try:
        return render_together(templates, values)
    except RenderingError as error:
        raise ParameterError(str(error)) from error


def _check_known(action: Action, names: Iterable[str]) -> None:
    for name in names:
        if name not in action.schema:
            hint = near(name, action.schema)
            raise ParameterError(f'{action.ref} has no parameter "{name}"{hint}')
        if action.schema[name].get("immutable"):
            raise ParameterError(f'parameter "{name}" of {action.ref} is immutable')


def _validate(action: Action, values: Values) -> None:
    schema = action.schema
    for name in schema:
        if _must_be_given(schema[name]) and values.get(name) is None:
            raise ParameterError(f'{action.ref} requires the parameter "{name}"')
    defaults = {name: item["default"] for name, item in schema.items() if "default" in item}
    whole = {"type": "object", "properties": schema}
    for name, reason in problems(whole, {**defaults, **values}):
        raise ParameterError(f'parameter "{name}" of {action.ref}: {reason}')


def _converted(name: str, kind: str | None, value: Any, by: Mapping[str, Converter]) -> Any:
    convert = by.get(kind or "")
    if value is None or convert is None:
        return value
    try:
        return convert(value)
    except (ValueError, SyntaxError, TypeError) as error:
        shown = json.dumps(value, default=str)
        raise ParameterError(f'parameter "{name}" must be of type {kind}, not {shown}') from error


def _parse_array(text: str) -> Any:
    try:
        parsed = json.loads(text)
    except ValueError:
        return [part.strip() for part in text.split(",")]
    return parsed if isinstance(parsed, list) else [parsed]


def _parse_object(text: str) -> Any:
    if text.startswith("{"):
        return json.loads(text)
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError(text)
    return {name: value for name, _, value in pairs}


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _cast_complex(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return ast.literal_eval(value)


def _cast_string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _cast_boolean(value: Any) -> Any:
    return _parse_boolean(value) if isinstance(value, str) else value


_PARSERS: dict[str, Converter] = {
    "array": _parse_array,
    "boolean": _parse_boolean,
    "integer": int,
    "number": float,
    "object": _parse_object,
}

_CASTS: dict[str, Converter] = {
    "array": _cast_complex,
    "boolean": _cast_boolean,
    "integer": int,
    "number": float,
    "object": _cast_complex,
    "string": _cast_string,
}
