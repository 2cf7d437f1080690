# SPDX-License-Identifier: Apache-2.0
"""What the metadata of actions and sensors says, held against the source of their Python files."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from edgetune.documents.options import Options
from edgetune.options import options_of
from tests.support.metadata.builtin import SENSOR_METHODS

_NOTHING = object()
_WORDS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_STARTS = {"array": "Sequence[", "object": "Mapping["}
_OPTIONS = [each.name for each in options_of(Options)]


def run_problems(parameters: dict[str, Any], source: str, root: Path) -> list[str]:
    """The parameters of an action's metadata are those of the step that its one `run` calls."""
    runs = {name: methods["run"] for name, methods in _classes(source).items() if "run" in methods}
    if len(runs) != 1:
        named = ", ".join(runs) or "none"
        return [f"entry_point: exactly one class must have `run`, not {named}"]
    step = _step(source, root)
    if step is None:
        return ["entry_point: `run` must call run_step with a step that is imported by its name"]
    arguments = _arguments(step.args)
    # A timer is not the business of steps; what a step takes beyond its names are options.
    more = {"periodic"} if step.args.kwarg is None else {"periodic", *_OPTIONS}
    own = {name: item for name, item in parameters.items() if name not in more - arguments.keys()}
    return _signature_problems(own, arguments)


def _step(source: str, root: Path) -> ast.FunctionDef | None:
    """The definition of what `run_step` is called with."""
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func) == "run_step"]
    modules = {
        alias.asname or alias.name: str(node.module)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    if len(named) != 1 or named[0] not in modules:
        return None
    file = root / "lib" / f"{modules[named[0]].replace('.', '/')}.py"
    body = ast.parse(file.read_text(encoding="utf-8")).body
    found = [own for own in body if isinstance(own, ast.FunctionDef) and own.name == named[0]]
    return found[0] if found else None


def sensor_problems(sensor: dict[str, Any], source: str, triggers: set[str]) -> list[str]:
    """The class of a sensor's metadata is in its file, is whole, and dispatches known triggers."""
    methods = _classes(source).get(sensor["class_name"])
    if methods is None:
        return [f"class_name: {sensor['class_name']} is not in {sensor['entry_point']}"]
    missing = SENSOR_METHODS - set(methods)
    problems = [f"class_name: the class has no method {name}" for name in sorted(missing)]
    beat = "poll" if "poll_interval" in sensor else "run"
    if beat not in methods:
        problems.append(f"poll_interval: the class has no method {beat}")
    unknown = sorted(dispatched(source) - triggers)
    return problems + [f"entry_point: dispatches unknown trigger {name}" for name in unknown]


def dispatched(source: str) -> set[str]:
    """The refs of the triggers that a sensor's source dispatches by name."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    triggers = [_trigger(call) for call in calls if _called(call) == "dispatch"]
    # One that is put together as it runs is for the sensor's own tests.
    return {str(_literal(each)) for each in triggers if not isinstance(each, ast.JoinedStr)}


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _trigger(call: ast.Call) -> ast.expr:
    named = [keyword.value for keyword in call.keywords if keyword.arg == "trigger"]
    return (named or call.args)[0]


def _literal(node: ast.expr) -> Any:
    """The value of a literal; of anything else its source, which then fits nothing."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def _classes(source: str) -> dict[str, dict[str, ast.FunctionDef]]:
    """Class to its methods by name."""
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return {
        node.name: {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
        for node in classes
    }


def _arguments(arguments: ast.arguments) -> dict[str, tuple[str, Any]]:
    """Name to annotation and default (or _NOTHING) of everything but the context.

    What is given by keyword only is between the steps themselves.
    """
    plain = arguments.args[1:]
    gap: list[Any] = [None] * (len(plain) - len(arguments.defaults))
    return {
        argument.arg: (
            ast.unparse(argument.annotation) if argument.annotation else "",
            _NOTHING if default is None else _literal(default),
        )
        for argument, default in zip(plain, gap + arguments.defaults)
    }


def _signature_problems(
    parameters: dict[str, Any], arguments: dict[str, tuple[str, Any]]
) -> list[str]:
    missing = [
        f"parameters.{name}: the step has none" for name in parameters if name not in arguments
    ]
    extra = [f"parameters: the step wants {name}" for name in arguments if name not in parameters]
    both = [name for name in parameters if name in arguments]
    return (
        missing
        + extra
        + [
            f"parameters.{name}: {problem}"
            for name in both
            for problem in _argument_problems(parameters[name], *arguments[name])
        ]
    )


def _argument_problems(parameter: dict[str, Any], annotation: str, default: Any) -> list[str]:
    problems = []
    if not _annotation_fits(parameter["type"], annotation):
        problems.append(f"is of type {parameter['type']}, in the step {annotation or 'of none'}")
    if parameter.get("required"):
        if default is not _NOTHING:
            problems.append("is required, but has a default in the step")
    elif default is _NOTHING:
        problems.append("is not required, but has no default in the step")
    elif not _same_default(parameter.get("default"), default):
        problems.append(f"default is {parameter.get('default')!r}, in the step {default!r}")
    return problems


def _annotation_fits(kind: str, annotation: str) -> bool:
    return annotation == _WORDS.get(kind) or annotation.startswith(_STARTS.get(kind, "\0"))


def _same_default(documented: Any, default: Any) -> bool:
    # What StackStorm renders is known only then.
    if isinstance(documented, str) and "{{" in documented:
        return default == ""
    # A list may not be a default in Python.
    if default == ():
        return not documented
    same_kind = isinstance(documented, bool) == isinstance(default, bool)
    return same_kind and bool(documented == default)
