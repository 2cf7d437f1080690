# SPDX-License-Identifier: Apache-2.0
"""JSON Schema of StackStorm's dialect, where `required` is a boolean beside the type."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any

from lab.runner.metadata import Schema

__all__ = ["NO_EXPRESSION", "problems"]

NO_EXPRESSION = r"^(?![\s\S]*([{][%{#]|<%))"
"""What texts match that hold no expression of StackStorm; parameters of the pack have it."""

_OURS = ("default", "immutable", "position", "required", "secret")


def problems(schema: Schema, value: Any) -> Iterator[tuple[str, str]]:
    """What is wrong with a value: dotted path (empty for the value itself) and reason, one line."""
    for error in _validator_class()(_draft4(schema)).iter_errors(value):
        yield ".".join(str(part) for part in error.path), _reason(error)


def _reason(error: Any) -> str:
    """In one line; a pattern that keeps expressions out explains nothing to a person."""
    if error.validator == "pattern" and error.validator_value == NO_EXPRESSION:
        return "holds {{, {%, {# or <%, which a workflow would evaluate"
    return " ".join(error.message.split())


@lru_cache(maxsize=1)
def _validator_class() -> Any:
    # jsonschema 2.6, which orquesta 1.2.0 insists on, warns when imported on Python 3.9.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module("jsonschema").Draft4Validator


def _draft4(schema: Schema) -> Schema:
    plain = {key: value for key, value in schema.items() if key not in _OURS}
    properties = plain.get("properties", {})
    if properties:
        plain["properties"] = {name: _nullable(item) for name, item in properties.items()}
        required = [name for name, item in properties.items() if item.get("required") is True]
        plain.update({"required": required} if required else {})
    if isinstance(plain.get("items"), dict):
        plain["items"] = _draft4(plain["items"])
    return plain


def _nullable(schema: Schema) -> Schema:
    """An optional property without a default may be null, unless an `enum` says otherwise."""
    plain = _draft4(schema)
    if schema.get("default") is None and not schema.get("required"):
        if isinstance(plain.get("type"), str):
            plain["type"] = [plain["type"], "null"]
        if "anyOf" in plain:
            plain["anyOf"] = [*plain["anyOf"], {"type": "null"}]
    return plain
