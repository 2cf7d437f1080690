# SPDX-License-Identifier: Apache-2.0
"""Configuration, actions and workflows, rules and sensors, and chat: from the pack's YAML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from docs.pages.markdown import Document, code, codes, documents, items, page, paragraph, table, yes
from docs.pages.metadata import DURATION
from edgetune.base.files import load_yaml

_INNER = "(inner) "
"""What the description of an action begins with that workflows and rules alone call."""

_USUAL_TIMEOUT = 60
"""Seconds that an action may take; a workflow has no such bound."""

Rows = Mapping[str, tuple[str, ...]]
"""Name, value and meaning of parameters, by name."""


def configuration_page(root: Path) -> str:
    return page("configuration", options=_listed(_rows_of(load_yaml(root / "config.schema.yaml"))))


def actions_page(root: Path) -> str:
    known = documents(root, "actions")
    people = [item for item in known if not item["description"].startswith(_INNER)]
    flows = [item for item in people if item["runner_type"] == "orquesta"]
    actions = [item for item in people if item["runner_type"] != "orquesta"]
    inner = [item for item in known if item["description"].startswith(_INNER)]
    shared = _shared(people)
    return page(
        "actions",
        workflows="\n\n".join(_section(item, shared) for item in flows),
        actions="\n\n".join(_section(item, shared) for item in actions),
        shared=_listed(shared),
        inner=paragraph(f"{codes(item['name'] for item in inner)}."),
    )


def _section(action: Document, shared: Rows) -> str:
    """What it does, and its parameters: the name alone of each that is like those of others."""
    own = _rows_of(action["parameters"])
    common = codes(each for each, row in own.items() if shared.get(each) == row)
    others = _listed({each: row for each, row in own.items() if shared.get(each) != row})
    told = _told_of(action) + (f" Parameters: {common}." if common else "")
    return "\n\n".join(
        [f"### {code(action['name'])}", paragraph(told), *([others] if others else [])]
    )


def _told_of(action: Document) -> str:
    """What it does, and how long it may run where that is not as usual."""
    bound = action["parameters"].get("timeout", {}).get("default", _USUAL_TIMEOUT)
    told = "" if bound == _USUAL_TIMEOUT else f" Timeout {bound} s."
    return str(action["description"]).removeprefix(_INNER) + told


def rules_page(root: Path) -> str:
    return page(
        "rules",
        rules=_rules(root),
        sensors=_sensors(root),
        triggers=_triggers(root),
        policies=_policies(root),
    )


def chat_page(root: Path) -> str:
    commands = (
        f"{codes(item['display'] for item in alias['formats'])}: {alias['description']} "
        f"({code(alias['action_ref'])})"
        for alias in sorted(documents(root, "aliases"), key=_changes_something)
    )
    return page("chat", commands=items(commands))


def _listed(rows: Rows) -> str:
    return items(f"{name} ({value}): {meaning}" for name, value, meaning in rows.values())


def _rows_of(parameters: Document) -> Rows:
    """A row for each parameter or option; those of the runner have no description, and none."""
    return {
        name: (
            code(name),
            _value_of(item),
            item["description"],
        )
        for name, item in parameters.items()
        if "description" in item
    }


def _value_of(parameter: Document) -> str:
    """Its type and its default, unless that is empty."""
    kind, default = type_of(parameter), parameter.get("default")
    if parameter.get("required"):
        return f"{kind}, required"
    if default in (None, "", []):
        return kind
    given = "from the context" if "{{" in str(default) else code(default)
    return f"{kind}, default {given}"


def type_of(parameter: Document) -> str:
    """The type with what limits it, such as `number, 0.05 to 0.95`."""
    if f" {DURATION} " in parameter.get("description", ""):
        return "duration"
    kind = str(parameter["type"])
    below = parameter.get("items", {}).get("type")
    if below:
        kind += f" of {below}s"
    if "enum" in parameter:
        kind += f": {codes(parameter['enum'])}"
    least, most = parameter.get("minimum"), parameter.get("maximum")
    if least is not None and most is not None:
        return f"{kind}, {least} to {most}"
    if least is not None or most is not None:
        return f"{kind}, " + (f"at least {least}" if most is None else f"at most {most}")
    return kind


def _shared(actions: Iterable[Document]) -> Rows:
    """Of each parameter that several have in one way, the way that most have."""
    times = Counter(
        (name, row) for action in actions for name, row in _rows_of(action["parameters"]).items()
    )
    found: dict[str, tuple[str, ...]] = {}
    for (name, row), number in times.most_common():
        if number > 1:
            found.setdefault(name, row)
    return found


def _rules(root: Path) -> str:
    return items(map(_rule, documents(root, "rules")))


def _rule(rule: Document) -> str:
    trigger = rule["trigger"]
    when = " ".join([code(trigger["type"]), *filter(None, [_pairs(trigger.get("parameters", {}))])])
    off = "" if rule["enabled"] else " (disabled)"
    return (
        f"{code(rule['name'])}{off}: {rule['description']} {when} -> {code(rule['action']['ref'])}"
    )


def _sensors(root: Path) -> str:
    rows = [
        (
            code(Path(sensor["entry_point"]).stem),
            f"{sensor['poll_interval']} s" if "poll_interval" in sensor else "",
            yes(sensor["enabled"]),
            sensor["description"],
        )
        for sensor in documents(root, "sensors")
    ]
    return table("sensor, every, enabled, what it does", rows)


def _triggers(root: Path) -> str:
    return items(
        f"{code('edgetune.' + trigger['name'])}: {trigger['description']} "
        f"Payload: {codes(trigger['payload_schema']['properties'])}."
        for trigger in documents(root, "triggers")
    )


def _policies(root: Path) -> str:
    rows = [
        (
            code(policy["name"]),
            f"{code(policy['policy_type'])} {_pairs(policy['parameters'])}",
            code(policy["resource_ref"]),
            policy["description"],
        )
        for policy in documents(root, "policies")
    ]
    return table("policy, type, action, what it does", rows)


def _pairs(values: Document) -> str:
    """Such as `threshold 1, action cancel`."""
    return ", ".join(
        f"{key} {', '.join(value) if isinstance(value, list) else value}"
        for key, value in values.items()
    )


def _changes_something(alias: Document) -> bool:
    return not str(alias["description"]).startswith("Reads only")
