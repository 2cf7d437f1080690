# SPDX-License-Identifier: Apache-2.0
"""Documents of ours as a store gives them back: each is whole and typed, or the error names it.

The types are dataclasses whose fields are plain (``str``, ``int``, ``float``, ``bool``), other such
dataclasses, ``X | None``, or ``list``, ``dict`` and ``tuple`` of these; ``Any`` is not looked into.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from edgetune.errors import DamagedError
from edgetune.texts import one_line

Kind = TypeVar("Kind")

LARGEST = 1e15
"""No number of a record is larger: above it, clocks and counts of floats break."""
DEEPEST = 40
_SHOWN = 60

_TYPES = {
    "str": "text",
    "int": "a whole number",
    "large": "a whole number of at most 64 bits",
    "float": "a finite number",
    "bool": "true or false",
}
_KINDS = {
    type(None): "nothing",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a mapping",
}
_CONTAINERS = {"list": (list, "a list"), "tuple": (list, "a list"), "dict": (dict, "a mapping")}


def read_document(key: str, text: Any) -> dict[str, Any]:
    """The JSON object under a key of the store; DamagedError if the text is none."""
    try:
        document = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedError(key, "", f"is no JSON: {_cut(str(error))}") from None
    if not isinstance(document, dict):
        raise DamagedError(key, "", f"must be a mapping, not {_shown(document)}")
    _refuse_depth(key, document)
    return document


def digest_of(document: Any) -> str:
    """SHA-256 over the canonical JSON of a document, as ``sha256:`` and 16 hex digits."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def decoded(key: str, kind: type[Kind], values: Any) -> Kind:
    """A dataclass of what stands under a key, those inside it, too; DamagedError as
    ``check_fields``."""
    check_fields(key, kind, values)
    made: Kind = _made(kind, values)
    return made


def check_fields(key: str, kind: type[Any], values: Any, path: str = "") -> None:
    """DamagedError unless ``values`` hold the fields of a dataclass, each of its annotated type.

    A field with a default may be missing: an earlier version did not know it. ``metadata`` of a
    field may say in ``holds`` more exactly than its annotation what it holds: ``large`` is a whole
    number beyond LARGEST.
    """
    if not isinstance(values, dict):
        raise DamagedError(key, path, f"must be a mapping, not {_shown(values)}")
    known = {each.name: each for each in fields(kind)}
    for name in values.keys() - known.keys():
        raise DamagedError(key, _below(path, name), "is not known to this version of the pack")
    for name, each in known.items():
        if name in values:
            wanted = _parsed(each.metadata.get("holds", each.type))
            _check(key, _below(path, name), wanted, values[name], kind)
        elif each.default is MISSING and each.default_factory is MISSING:
            raise DamagedError(key, _below(path, name), "is missing")


def check_is(key: str, field: str, good: bool, problem: str) -> None:
    """DamagedError about a field, unless what is asked of it is ``good``."""
    if not good:
        raise DamagedError(key, _cut(field), problem)


def _check(key: str, path: str, wanted: ast.expr, value: Any, kind: type[Any]) -> None:
    if isinstance(wanted, ast.BinOp):  # X | None
        if value is not None:
            _check(key, path, wanted.left, value, kind)
    elif isinstance(wanted, ast.Subscript):
        _check_container(key, path, wanted, value, kind)
    elif isinstance(wanted, ast.Name) and wanted.id != "Any":
        inner = getattr(sys.modules[kind.__module__], wanted.id, None)
        if is_dataclass(inner):
            check_fields(key, inner, value, path)  # type: ignore[arg-type]
        elif not _is_plain(wanted.id, value):
            raise DamagedError(key, path, f"must be {_TYPES[wanted.id]}, not {_shown(value)}")


def _check_container(
    key: str, path: str, wanted: ast.Subscript, value: Any, kind: type[Any]
) -> None:
    container, named = _CONTAINERS[wanted.value.id]  # type: ignore[attr-defined]
    if type(value) is not container:
        raise DamagedError(key, path, f"must be {named}, not {_shown(value)}")
    if container is list:
        inner = _inside(wanted)
        for index, item in enumerate(value):
            _check(key, f"{path}[{index}]", inner, item, kind)
    else:
        for name, item in value.items():
            _check(key, _below(path, name), _inside(wanted), item, kind)


def _inside(container: ast.Subscript) -> ast.expr:
    """What each item of ``list[X]``, ``tuple[X, ...]`` or ``dict[str, X]`` is."""
    inside = container.slice
    if not isinstance(inside, ast.Tuple):
        return inside
    return inside.elts[0 if getattr(container.value, "id", "") == "tuple" else 1]


def _made(kind: type[Any], values: Mapping[str, Any]) -> Any:
    own = (each for each in fields(kind) if each.name in values)
    parts = {e.name: _part(_parsed(str(e.type)), values[e.name], kind) for e in own}
    return kind(**parts)


def _part(wanted: ast.expr, value: Any, kind: type[Any]) -> Any:
    if isinstance(wanted, ast.BinOp):  # X | None
        return None if value is None else _part(wanted.left, value, kind)
    if isinstance(wanted, ast.Subscript):
        inner = _inside(wanted)
        if isinstance(value, dict):
            return {name: _part(inner, item, kind) for name, item in value.items()}
        items = [_part(inner, item, kind) for item in value]
        return tuple(items) if getattr(wanted.value, "id", "") == "tuple" else items
    inside = getattr(sys.modules[kind.__module__], getattr(wanted, "id", ""), None)
    return _made(inside, value) if is_dataclass(inside) else value  # type: ignore[arg-type]


def _is_plain(wanted: str, value: Any) -> bool:
    if wanted == "float":
        return type(value) in (int, float) and abs(value) <= LARGEST
    if wanted == "large":
        return type(value) is int and abs(value) < 2**63
    if wanted == "int":
        return type(value) is int and abs(value) <= LARGEST
    return type(value).__name__ == wanted


@cache
def _parsed(annotation: str) -> ast.expr:
    return ast.parse(annotation, mode="eval").body


def _refuse_depth(key: str, document: Mapping[str, Any]) -> None:
    """What is nested without end would end each walk through it in the middle."""
    layer: list[Any] = [document]
    for _ in range(DEEPEST):
        inside = [list(each.values()) if type(each) is dict else each for each in layer]
        layer = [value for each in inside for value in each if type(value) in (dict, list)]
        if not layer:
            return
    raise DamagedError(key, "", f"is nested more than {DEEPEST} deep")


def _below(path: str, name: str) -> str:
    return f"{path}.{_cut(name)}" if path else _cut(name)


def _shown(value: Any) -> str:
    return _KINDS.get(type(value), "something else")


def _cut(text: str) -> str:
    return one_line(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
