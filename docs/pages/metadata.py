# SPDX-License-Identifier: Apache-2.0
"""The YAML that StackStorm reads and code says: options of people, and what chat answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from edgetune.base.documents.options import Options
from edgetune.base.errors import InputError
from edgetune.base.files import load_yaml
from edgetune.base.options import Option, options_of
from edgetune.site.config import Config
from lab.runner.schemas import NO_EXPRESSION

HEADER = "---\n# Written by `python docs/generate.py` from lib/edgetune/site/config.py.\n"
BEGIN = "# BEGIN GENERATED options of a rollout, by docs/generate.py\n"
END = "# END GENERATED options of a rollout\n"
DURATION = "A duration"
"""The last sentence of the description of an option that is one begins so."""
ANSWERS = Path(__file__).with_name("answers")
_ANSWER = re.compile(r"^result:\n.*?^      color: [^\n]*\n", re.DOTALL | re.MULTILINE)
_TYPES = {"bool": "boolean", "int": "integer", "float": "number"}


def metadata(root: Path) -> dict[str, str]:
    """The text of each file by its path; InputError names one that has no place for its part."""
    options = options_of(Options)
    parameters = "".join(_entry(each, _parameter(each), 2) for each in options)
    guarded = "".join(_entry(each, _guarded(_parameter(each)), 2) for each in options)
    inputs = "".join(f"  - {each.name}\n" for each in options)
    handed_on = "".join(f"      {each.name}: <% ctx({each.name}) %>\n" for each in options)
    return {
        "config.schema.yaml": HEADER
        + "".join(_entry(each, _configured(each), 0) for each in options_of(Config)),
        "actions/plan_rollout.yaml": _with(root, "actions/plan_rollout.yaml", parameters),
        "actions/rollout_pop.yaml": _with(root, "actions/rollout_pop.yaml", guarded),
        "workflows/rollout_pop.yaml": _with(root, "workflows/rollout_pop.yaml", inputs, handed_on),
        **{
            f"aliases/{path.name}": _with_answer(root, path)
            for path in sorted((root / "aliases").glob("*.yaml"))
        },
    }


def _parameter(option: Option) -> dict[str, Any]:
    """Of an action. StackStorm's client knows types of one word, so a duration is a text."""
    if option.is_list:
        typed: dict[str, Any] = {"type": "array"}
        limits: dict[str, Any] = {"items": {"type": "object" if option.item else "string"}}
    elif option.item or option.is_time:
        typed, limits = {"type": "object" if option.item else "string"}, {}
    else:
        typed = {"type": _TYPES.get(option.type, "string")}
        limits = {"minimum": option.least, "maximum": option.most}
    given = {"required": True} if option.default is None else {"default": option.written}
    schema = {**typed, "description": _described(option), **given, **limits}
    return {key: value for key, value in schema.items() if value is not None}


def _guarded(parameter: dict[str, Any]) -> dict[str, Any]:
    """The same of a workflow: no text of it is an expression."""
    if parameter["type"] == "string":
        return {**parameter, "pattern": NO_EXPRESSION}
    if parameter["type"] == "array":
        return {**parameter, "items": {**parameter["items"], "pattern": NO_EXPRESSION}}
    return parameter


def _configured(option: Option) -> dict[str, Any]:
    """Of the configuration, which has no client: a duration is a number or a text."""
    schema = _parameter(option)
    if not option.is_time:
        return schema
    del schema["type"]
    return {"anyOf": [{"type": "number"}, {"type": "string"}], **schema}


def _described(option: Option) -> str:
    if not option.is_time:
        return option.means
    word = "of" if option.bounds.startswith("at ") else "from"
    return f"{option.means} {DURATION} {word} {option.bounds}."


def _entry(option: Option, schema: dict[str, Any], indent: int) -> str:
    """Its YAML, in which each line of text is in quotes."""
    lines = [f"{option.name}:"]
    for key, value in schema.items():
        if isinstance(value, dict) and value:
            lines += [f"  {key}:", *(f"    {own}: {_scalar(v)}" for own, v in value.items())]
        elif key == "anyOf":
            lines += [f"  {key}:", *(f"    - type: {each['type']}" for each in value)]
        else:
            lines.append(f"  {key}: {value if key == 'type' else _scalar(value)}")
    return "".join(f"{' ' * indent}{line}\n" for line in lines)


def _scalar(value: Any) -> str:
    plain = (*_TYPES.values(), "string", "object")
    return value if value in plain else json.dumps(value)


def _with(root: Path, name: str, *parts: str) -> str:
    """The file with what stands between the markers replaced, in their order."""
    text = (root / name).read_text(encoding="utf-8")
    pieces = re.split(rf"( *{re.escape(BEGIN)})(?:.*?)( *{re.escape(END)})", text, flags=re.DOTALL)
    if len(pieces) != 3 * len(parts) + 1:
        raise InputError(name, None, f"must have {len(parts)} times {BEGIN.strip()}, and its end")
    made = [
        f"{before}{begin}{part}{end}"
        for before, begin, part, end in zip(pieces[::3], pieces[1::3], parts, pieces[2::3])
    ]
    return "".join([*made, pieces[-1]])


def _with_answer(root: Path, path: Path) -> str:
    """An alias with the answer of all aliases whose action has the same runner."""
    text = path.read_text(encoding="utf-8")
    action = str(load_yaml(path)["action_ref"]).partition(".")[2]
    runner = load_yaml(root / f"actions/{action}.yaml")["runner_type"]
    answer = (ANSWERS / f"{runner}.yaml").read_text(encoding="utf-8")
    made, found = _ANSWER.subn(lambda _: answer, text)
    if found != 1:
        raise InputError(f"aliases/{path.name}", "result", "must end with its color, once")
    return made
