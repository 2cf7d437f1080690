# SPDX-License-Identifier: Apache-2.0
"""Configuration, actions and workflows, rules and sensors, and chat: from the pack's YAML."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from docs.pages.markdown import Document, code, codes, documents, page, paragraph, table, yes
from docs.pages.metadata import DURATION
from edgetune.base.files import load_yaml


def configuration_page(root: Path) -> str:
    return page(
        "configuration", options=_parameter_table("option", load_yaml(root / "config.schema.yaml"))
    )


def actions_page(root: Path) -> str:
    known = documents(root, "actions")
    flows = [item for item in known if item["runner_type"] == "orquesta"]
    actions = [item for item in known if item["runner_type"] != "orquesta"]
    told = [(code(item["name"]), item["description"]) for item in flows]
    timed = [(code(item["name"]), item["description"], _timeout_of(item)) for item in actions]
    return page(
        "actions",
        workflows=_with_parameters(table("workflow, what it does", told), flows),
        actions=_with_parameters(table("action, what it does, timeout", timed), actions),
    )


def rules_page(root: Path) -> str:
    return page(
        "rules",
        rules=_rules(root),
        sensors=_sensors(root),
        triggers=_triggers(root),
        policies=_policies(root),
    )


def chat_page(root: Path) -> str:
    rows = [
        (
            codes(item["display"] for item in alias["formats"]),
            code(alias["action_ref"]),
            alias["description"],
        )
        for alias in sorted(documents(root, "aliases"), key=_changes_something)
    ]
    return page("chat", commands=table("command, action, what it does", rows))


def _parameter_table(heading: str, parameters: Document) -> str:
    """What each parameter or option is; those of the runner, without description, are left out."""
    rows = [
        (
            code(name),
            type_of(item),
            yes(item.get("required")),
            code(item["default"]) if "default" in item else "",
            item["description"],
        )
        for name, item in parameters.items()
        if "description" in item
    ]
    return table(f"{heading}, type, required, default, meaning", rows)


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


def _with_parameters(summary: str, actions: Iterable[Document]) -> str:
    """The summary, and one table for all actions with the same parameters."""
    names_by_table: dict[str, list[str]] = {}
    for action in actions:
        if any("description" in item for item in action["parameters"].values()):
            text = _parameter_table("parameter", action["parameters"])
            names_by_table.setdefault(text, []).append(action["name"])
    parts = [
        f"{paragraph(f'Parameters of {codes(names)}:')}\n\n{text}"
        for text, names in names_by_table.items()
    ]
    return "\n\n".join([summary, *parts])


def _timeout_of(action: Document) -> str:
    """How long it may run; what only announces takes no time."""
    given = action["parameters"].get("timeout")
    return f"{given['default']} s" if given else ""


def _rules(root: Path) -> str:
    rows = [
        (
            code(rule["name"]),
            " ".join(
                [code(rule["trigger"]["type"]), _pairs(rule["trigger"].get("parameters", {}))]
            ),
            code(rule["action"]["ref"]),
            yes(rule["enabled"]),
            rule["description"],
        )
        for rule in documents(root, "rules")
    ]
    return table("rule, trigger, action, enabled, what it does", rows)


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
    rows = [
        (
            code(f"edgetune.{trigger['name']}"),
            codes(trigger["payload_schema"]["properties"]),
            trigger["description"],
        )
        for trigger in documents(root, "triggers")
    ]
    return table("trigger, payload, when", rows)


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
