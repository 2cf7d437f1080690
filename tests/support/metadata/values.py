# SPDX-License-Identifier: Apache-2.0
"""Documents of a pack, and the values that one of them gives to the parameters of another."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from edgetune.base.files import load_yaml
from tests.support.metadata.schemas import PARAMETER, RUNNERS, TRIGGER_PAYLOADS, Schema

Document = dict[str, Any]

EXPRESSION = re.compile(r"\{\{|\{%|<%")


@dataclass(frozen=True)
class Known:
    """What documents of a pack may refer to, by ref."""

    actions: Mapping[str, Document]
    triggers: Mapping[str, Document]

    def payload(self, trigger: str) -> set[str] | None:
        """Names in the payload of a trigger; None if there is no such trigger."""
        if trigger in self.triggers:
            return set(self.triggers[trigger]["payload_schema"]["properties"])
        return TRIGGER_PAYLOADS.get(trigger)


@cache
def documents(root: Path, folder: str) -> dict[str, Document]:
    """Stem to document of the files that StackStorm would read in one folder; read once."""
    return {file.stem: load_yaml(file) for file in sorted((root / folder).glob("*.yaml"))}


def known(root: Path) -> Known:
    """What the pack at ``root`` defines."""
    return Known(
        {f"edgetune.{name}": data for name, data in documents(root, "actions").items()},
        {f"edgetune.{name}": data for name, data in documents(root, "triggers").items()},
    )


@lru_cache(maxsize=1)
def _validator() -> Any:
    # jsonschema 2.6, which orquesta 1.2.0 insists on, warns when imported on Python 3.9.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module("jsonschema").Draft4Validator


def shape(document: Any, schema: Schema, field: str = "") -> list[str]:
    """Findings of a JSON Schema."""
    whole = {**schema, "definitions": {"parameter": PARAMETER}}
    return [
        f"{_path(field, error.path)}: {error.message}"
        for error in _validator()(whole).iter_errors(document)
    ]


def _path(field: str, below: Any) -> str:
    return ".".join(part for part in (field, *map(str, below)) if part) or "document"


def value_problems(parameter: Schema, value: Any, field: str) -> list[str]:
    """A literal value fits a parameter; text with an expression is not looked at."""
    if _is_expression(value):
        return []
    if isinstance(value, list):
        value = [item for item in value if not _is_expression(item)]
    return shape(value, _draft4(parameter), field)


def _is_expression(value: Any) -> bool:
    return isinstance(value, str) and EXPRESSION.search(value) is not None


def _draft4(parameter: Schema) -> Schema:
    ours = ("default", "immutable", "position", "required", "secret", "description")
    plain = {key: value for key, value in parameter.items() if key not in ours}
    if "items" in plain:
        plain["items"] = _draft4(plain["items"])
    if "properties" in plain:
        plain["properties"] = {key: _draft4(item) for key, item in plain["properties"].items()}
    return plain


def own_parameters(action: Document) -> dict[str, Schema]:
    """The parameters of an action without those of its runner."""
    runner = RUNNERS.get(action["runner_type"], {})
    return {name: item for name, item in action["parameters"].items() if name not in runner}


def call_problems(actions: Mapping[str, Document], ref: str, given: Any, field: str) -> list[str]:
    """An action exists, and what it is given are parameters of it, whole and of the right type."""
    if ref not in actions:
        return [f"{field}: there is no action {ref!r}"]
    action = actions[ref]
    parameters = {**RUNNERS.get(action["runner_type"], {}), **own_parameters(action)}
    missing = [
        f"{field}.{name}: is required by {ref}"
        for name, item in parameters.items()
        if item.get("required") and name not in given
    ]
    return missing + [
        problem
        for name, value in given.items()
        for problem in _given_problems(ref, parameters.get(name), value, f"{field}.{name}")
    ]


def _given_problems(ref: str, parameter: Schema | None, value: Any, field: str) -> list[str]:
    if parameter is None:
        return [f"{field}: is no parameter of {ref}"]
    if parameter.get("immutable"):
        return [f"{field}: is immutable in {ref}"]
    if value is None and not parameter.get("required") and parameter.get("default") is None:
        return []
    return value_problems(parameter, value, field)


def name_problems(document: Document, name: str) -> list[str]:
    """A document is named as its file says, and is of this pack."""
    problems = []
    if document.get("name") != name:
        problems.append(f"name: must be {name!r} like its file, not {document.get('name')!r}")
    if document.get("pack", "edgetune") != "edgetune":
        problems.append(f"pack: must be 'edgetune', not {document['pack']!r}")
    return problems


def altered(document: Document, path: str, value: Any) -> Document:
    """A copy with one value put in at a dotted path."""
    copy = deepcopy(document)
    place: Any = copy
    *above, last = path.split(".")
    for part in above:
        place = place[int(part) if isinstance(place, list) else part]
    place[last] = value
    return copy
