# SPDX-License-Identifier: Apache-2.0
"""The result that a step is annotated with has the fields of its action's ``output_schema``.

Annotations are compared as texts: Python 3.9 cannot evaluate ``X | None``.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from edgetune.report.answers import TEXTS
from tests.support import ROOT
from tests.support.metadata.values import documents

ACTIONS = documents(ROOT, "actions")
WITH_CODE = [name for name, own in ACTIONS.items() if own["runner_type"] == "python-script"]
PLAIN = {
    **{"str": "string", "int": "integer", "float": "number", "bool": "boolean"},
    **{"list": "array", "dict": "object"},
    **{each.__name__: "string" for each in TEXTS},
}
ANY_OBJECT = {"type": "object"}


def result_of(action: str) -> type[Any]:
    """The TypedDict that the step of an action returns."""
    source = (ROOT / f"actions/{action}.py").read_text()
    step = re.findall(r"run_step\(\s*(\w+),", source)[0]
    (module,) = re.findall(rf"^from (\S+) import {step}$", source, re.MULTILINE)
    where = importlib.import_module(module)
    name = getattr(where, step).__annotations__["return"]
    result = getattr(where, name, None)
    assert hasattr(result, "__required_keys__"), f"{action}: {step} returns {name}, no TypedDict"
    assert isinstance(result, type)
    return result


def schema_of(annotation: str) -> dict[str, Any]:
    """``{type}``, and for a list its ``items``."""
    outer, _, inside = annotation.split(" | ")[0].partition("[")
    assert outer in PLAIN or outer.isidentifier(), annotation
    found: dict[str, Any] = {"type": PLAIN.get(outer, "object")}
    return {**found, "items": schema_of(inside[:-1])} if outer == "list" else found


def written(field: dict[str, Any]) -> dict[str, Any]:
    """A field of an ``output_schema`` without its description; a list of no items is of objects."""
    kept = {name: field[name] for name in ("type", "items") if name in field}
    return {**kept, "items": kept.get("items", ANY_OBJECT)} if kept["type"] == "array" else kept


@pytest.mark.parametrize("action", WITH_CODE)
def test_a_step_returns_the_fields_of_its_output_schema(action: str) -> None:
    fields = result_of(action).__annotations__
    told = {name: schema_of(own.__forward_arg__) for name, own in fields.items()}
    properties = ACTIONS[action]["output_schema"]["properties"]
    assert told == {name: written(own) for name, own in properties.items()}
