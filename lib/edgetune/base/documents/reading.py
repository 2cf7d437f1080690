# SPDX-License-Identifier: Apache-2.0
"""Documents of ours as a store gives them back: each is whole and typed, or the error names it.

The types are dataclasses whose fields are plain (``str``, ``int``, ``float``, ``bool``,
``Number``), an enumeration of texts, other such dataclasses, ``X | None``, or ``list``, ``dict``
and ``tuple`` of these. ``Value`` is a value of a setting, and ``object`` is not looked into.
"""

from __future__ import annotations

import ast
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from edgetune.base.dataclass import dataclass
from edgetune.base.errors import DamagedError
from edgetune.base.sanitize import one_line

Kind = TypeVar("Kind")
Number = float
"""As the type of a field: any number but NaN. What hosts count, and a ratio of it, is larger than
``LARGEST`` where a counter is damaged; that is for the judge to see."""

LARGEST = 1e15
"""No number of a record is larger: above it, clocks and counts of floats break."""
DEEPEST = 40
KEPT_IF_SET = {"kept_if_set": True}
"""``metadata`` of a field that a document leaves out where it is None."""
_SHOWN = 60

_TYPES = {
    "str": "text",
    "int": "a whole number",
    "large": "a whole number of at most 64 bits",
    "float": "a finite number",
    "Number": "a number",
    "bool": "true or false",
    "Value": "a text or a mapping",
}
_PLAIN: Mapping[str, tuple[frozenset[type], Any, Any]] = {
    "str": (frozenset((str,)), None, None),
    "bool": (frozenset((bool,)), None, None),
    "int": (frozenset((int,)), -LARGEST, LARGEST),
    "large": (frozenset((int,)), 1 - 2**63, 2**63 - 1),
    "float": (frozenset((int, float)), -LARGEST, LARGEST),
    "Number": (frozenset((int, float)), -math.inf, math.inf),
    "Value": (frozenset((str, dict)), None, None),
}
"""By name of a type: of what types values are, and between what they lie."""
_KINDS = {
    type(None): "nothing",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a mapping",
}
_FLOATS = int(sys.float_info.max)
_AS_IT_IS = frozenset((str, int, float, bool, type(None)))
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
    import hashlib

    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def decoded(key: str, kind: type[Kind], values: Any) -> Kind:
    """A dataclass of what stands under a key, those inside it, too; DamagedError as
    ``check_fields``."""
    check_fields(key, kind, values)
    made: Kind = _made(kind, values)
    return made


def taken(kind: type[Kind], values: Mapping[str, object]) -> Kind:
    """A dataclass of what was checked already, without what else there is."""
    made: Kind = _made(kind, values)
    return made


def encoded(value: Any) -> Any:
    """What ``decoded`` reads: a dataclass as a mapping, those inside it, too; all else as it is."""
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    known = _fields_of(kind)
    if known:
        values = ((name, each, getattr(value, name)) for name, each in known.items())
        kept = (
            (name, inner) for name, e, inner in values if inner is not None or not e.kept_if_set
        )
        return {name: encoded(inner) for name, inner in kept}
    if isinstance(value, dict):
        return {name: encoded(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encoded(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def renamed(values: Any, names: Mapping[str, str]) -> Any:
    """A mapping with those ``names`` of an earlier version as today's have them.

    What is no mapping is left for its reader to refuse.
    """
    if not isinstance(values, dict):
        return values
    return {names.get(name, name): value for name, value in values.items()}


def check_fields(key: str, kind: type[Any], values: Any, path: str = "") -> None:
    """DamagedError unless ``values`` hold the fields of a dataclass, each of its annotated type.

    A field with a default may be missing: an earlier version did not know it. ``metadata`` of a
    field may say in ``holds`` more exactly than its annotation what it holds: ``large`` is a whole
    number beyond LARGEST.
    """
    if not isinstance(values, dict):
        raise DamagedError(key, path, f"must be a mapping, not {_shown(values)}")
    known = _fields_of(kind)
    for name in values.keys() - known.keys():
        raise DamagedError(key, _below(path, name), "is not known to this version of the pack")
    for name, each in known.items():
        if name in values:
            # Most fields are plain and in order, and a record has ten thousands of them.
            if not each.plain or not _are_plain(each.plain, (values[name],)):
                _check(key, f"{path}.{name}" if path else name, each.held, values[name], kind)
        elif each.required:
            raise DamagedError(key, f"{path}.{name}" if path else name, "is missing")


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
    elif isinstance(wanted, ast.Name) and wanted.id != "object":
        inner, is_a = _named(wanted.id, kind)
        if is_a is dataclass:
            check_fields(key, inner, value, path)
        elif is_a is Enum:
            words = [str(each.value) for each in inner]
            known = type(value) is str and value in words
            check_is(key, path, known, f"is none of {', '.join(words)}")
        elif not _are_plain(wanted.id, [value]):
            raise DamagedError(key, path, f"must be {_TYPES[wanted.id]}, not {_shown(value)}")


def _check_container(
    key: str, path: str, wanted: ast.Subscript, value: Any, kind: type[Any]
) -> None:
    container, named = _CONTAINERS[wanted.value.id]  # type: ignore[attr-defined]
    if type(value) is not container:
        raise DamagedError(key, path, f"must be {named}, not {_shown(value)}")
    inner = _inside(wanted)
    if _all_fit(inner, value if container is list else [*value.values()]):
        return
    if container is list:
        for index, item in enumerate(value):
            _check(key, f"{path}[{index}]", inner, item, kind)
    else:
        for name, item in value.items():
            _check(key, _below(path, name), inner, item, kind)


def _all_fit(wanted: ast.expr, values: Sequence[Any]) -> bool:
    """Whether values are seen to be of a type, all at once: there may be one for each host.

    Dataclasses and enumerations are never seen to be; ``_check`` looks at each.
    """
    if isinstance(wanted, ast.BinOp):  # X | None
        return _all_fit(wanted.left, [value for value in values if value is not None])
    if isinstance(wanted, ast.Subscript):
        container, _ = _CONTAINERS[wanted.value.id]  # type: ignore[attr-defined]
        if not {container}.issuperset(map(type, values)):
            return False
        parts = (value.values() for value in values) if container is dict else values
        return _all_fit(_inside(wanted), [*chain.from_iterable(parts)])
    return not values or (isinstance(wanted, ast.Name) and _are_plain(wanted.id, values))


def _inside(container: ast.Subscript) -> ast.expr:
    """What each item of ``list[X]``, ``tuple[X, ...]`` or ``dict[str, X]`` is."""
    inside = container.slice
    if not isinstance(inside, ast.Tuple):
        return inside
    return inside.elts[0 if getattr(container.value, "id", "") == "tuple" else 1]


def _made(kind: type[Any], values: Mapping[str, Any]) -> Any:
    return kind(
        **{
            name: values[name] if each.stays else _part(each.annotated, values[name], kind)
            for name, each in _fields_of(kind).items()
            if name in values
        }
    )


def _part(wanted: ast.expr, value: Any, kind: type[Any]) -> Any:
    if isinstance(wanted, ast.BinOp):  # X | None
        return None if value is None else _part(wanted.left, value, kind)
    if isinstance(wanted, ast.Subscript):
        inner = _inside(wanted)
        if isinstance(value, dict) and _is_plain_inside(inner):
            return value
        if isinstance(value, dict):
            return {name: _part(inner, item, kind) for name, item in value.items()}
        items = [_part(inner, item, kind) for item in value]
        return tuple(items) if getattr(wanted.value, "id", "") == "tuple" else items
    inside, is_a = _named(getattr(wanted, "id", ""), kind)
    if is_a is dataclass:
        return _made(inside, value)
    return inside(value) if is_a is Enum else value


class _Field(NamedTuple):
    """A field of a dataclass: how it is ``annotated``, and what it holds, ``held``.

    ``plain`` is the name of what it holds where that is no container and no class, else "".
    ``stays`` says that its value stays as JSON has it.
    """

    annotated: ast.expr
    held: ast.expr
    required: bool
    kept_if_set: bool
    plain: str
    stays: bool


_KNOWN_FIELDS: dict[type[Any], dict[str, _Field]] = {}
_KNOWN_NAMES: dict[tuple[str, type[Any]], tuple[Any, object]] = {}


def _fields_of(kind: type[Any]) -> dict[str, _Field]:
    """The fields of a dataclass by their names; none of any other type."""
    if kind not in _KNOWN_FIELDS:
        declared = fields(kind) if is_dataclass(kind) else ()
        _KNOWN_FIELDS[kind] = {each.name: _field(each, kind) for each in declared}
    return _KNOWN_FIELDS[kind]


def _field(declared: Field[Any], kind: type[Any]) -> _Field:
    annotated, held = (
        _parsed(str(declared.type)),
        _parsed(str(declared.metadata.get("holds", declared.type))),
    )
    name = held.id if isinstance(held, ast.Name) else ""
    return _Field(
        annotated,
        held,
        declared.default is MISSING and declared.default_factory is MISSING,
        "kept_if_set" in declared.metadata,
        name if name in _PLAIN and _named(name, kind)[1] is None else "",
        _is_plain_inside(annotated),
    )


def _named(name: str, kind: type[Any]) -> tuple[Any, object]:
    """What a name in the annotations of a dataclass stands for, and whether that is a
    ``dataclass`` or an ``Enum``; None for a built-in."""
    if (name, kind) not in _KNOWN_NAMES:
        stands_for = getattr(sys.modules[kind.__module__], name, None)
        is_enum = isinstance(stands_for, type) and issubclass(stands_for, Enum)
        is_a: object = dataclass if is_dataclass(stands_for) else Enum if is_enum else None
        _KNOWN_NAMES[name, kind] = stands_for, is_a
    return _KNOWN_NAMES[name, kind]


def _is_plain_inside(wanted: ast.expr) -> bool:
    """Whether what a container holds stays as JSON has it."""
    if isinstance(wanted, ast.BinOp):
        return _is_plain_inside(wanted.left)
    if isinstance(wanted, ast.Subscript):
        return wanted.value.id != "tuple" and _is_plain_inside(  # type: ignore[attr-defined]
            _inside(wanted)
        )
    return getattr(wanted, "id", "") in _TYPES


def _are_plain(wanted: str, values: Sequence[Any]) -> bool:
    kinds, least, most = _PLAIN.get(wanted, (frozenset(), None, None))
    if not kinds.issuperset(map(type, values)):
        return False
    # No comparison with NaN is true, and no float is a whole number of 400 digits.
    return most is None or all(
        least <= value <= most and (-_FLOATS < value < _FLOATS or type(value) is float)
        for value in values
    )


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
