# SPDX-License-Identifier: Apache-2.0
"""What the metadata of actions and sensors says, held against the steps and classes themselves."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from edgetune.base.documents.options import Options
from edgetune.base.options import options_of
from tests.support.metadata.schemas import SENSOR_METHODS

_WORDS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_STARTS = {"array": "Sequence[", "object": "Mapping["}
_OPTIONS = [each.name for each in options_of(Options)]


def run_problems(parameters: dict[str, Any], name: str, source: str) -> list[str]:
    """The parameters of an action's metadata are those of the step that its one `run` calls.

    What a step takes by keyword only is between the steps themselves.
    """
    (step,) = re.findall(r"run_step\(\s*(\w+),", source)
    _, *takes = signature(getattr(import_module(name), step)).parameters.values()
    own = {each.name: each for each in takes if each.kind is Parameter.POSITIONAL_OR_KEYWORD}
    # A timer is not the business of steps, nor is who signs; what a step takes beyond its names are
    # options.
    open_ended = any(each.kind is Parameter.VAR_KEYWORD for each in takes)
    signs = ("caller",) if "requested_by" in own else ()
    more = {"periodic", *signs, *(_OPTIONS if open_ended else ())} - own.keys()
    told = {key: item for key, item in parameters.items() if key not in more}
    return [f"parameters.{key}: the step has none" for key in sorted(told.keys() - own.keys())] + [
        f"parameters.{key}: {problem}"
        for key, each in own.items()
        for problem in (_problems(told[key], each) if key in told else ["the step wants it"])
    ]


def _problems(parameter: dict[str, Any], own: Parameter) -> list[str]:
    kind, annotation, problems = parameter["type"], str(own.annotation), []
    # A text that nobody has to give, and that is not to be empty.
    if own.default is None:
        annotation = annotation.replace(" | None", "")
    if annotation != _WORDS.get(kind) and not annotation.startswith(_STARTS.get(kind, "\0")):
        problems.append(f"is of type {kind}, in the step {annotation}")
    required = own.default is Parameter.empty
    if bool(parameter.get("required")) != required:
        problems.append(f"is {'' if required else 'not '}required by the step")
    elif not required and not _same_default(parameter.get("default"), own.default):
        problems.append(f"default is {parameter.get('default')!r}, in the step {own.default!r}")
    return problems


def _same_default(documented: Any, default: Any) -> bool:
    # What StackStorm renders is known only then.
    if isinstance(documented, str) and "{{" in documented:
        return bool(default == "")
    # A list may not be a default in Python.
    if default == ():
        return not documented
    same_kind = isinstance(documented, bool) == isinstance(default, bool)
    return same_kind and bool(documented == default)


def class_problems(sensor: dict[str, Any]) -> list[str]:
    """The class of a sensor's metadata is in its file, and is whole."""
    module = import_module(sensor["entry_point"].removesuffix(".py"))
    own = getattr(module, sensor["class_name"], None)
    wanted = SENSOR_METHODS | {"poll" if "poll_interval" in sensor else "run"}
    missing = sorted(wanted - vars(own).keys()) if own else [f"and is not there: {own}"]
    return [f"class_name: the class has no method {name}" for name in missing]
