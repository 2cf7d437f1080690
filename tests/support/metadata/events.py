# SPDX-License-Identifier: Apache-2.0
"""Sensors and rules: the triggers they name exist, and rules ask for what is in the payload."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.metadata.schemas import (
    NO_PARAMETERS,
    OPERATORS,
    RULE,
    SENSOR,
    TRIGGER_PARAMETERS,
)
from tests.support.metadata.source import class_problems
from tests.support.metadata.values import EXPRESSION, Document, Known, call_problems, shape

READ_ONLY = {
    "edgetune.plan_rollout",
    "edgetune.post",
    "edgetune.rollout_status",
    "edgetune.sample_running",
    "edgetune.watch_drift",
}
RECOVERY = ("recover_left", "recover_orphans")

_IN_TRIGGER = re.compile(r"\btrigger(?:\.|\[')(\w+)")
_BY_DOT = re.compile(r"\btrigger((?:\.\w+)+)")


def sensor_problems(sensor: Document, root: Path) -> list[str]:
    """A sensor registers, and its file holds the class it names."""
    found = shape(sensor, SENSOR)
    if found:
        return found
    file = root / "sensors" / sensor["entry_point"]
    if not file.is_file():
        return [f"entry_point: there is no file sensors/{sensor['entry_point']}"]
    return class_problems(sensor)


def rule_problems(rule: Document, pack: Known) -> list[str]:
    """A rule registers, can match, and calls an action as it wants to be called."""
    found = shape(rule, RULE)
    if found:
        return found
    trigger = rule["trigger"]["type"]
    payload = pack.payload(trigger)
    if payload is None:
        return [f"trigger.type: there is no trigger {trigger!r}"]
    wanted = TRIGGER_PARAMETERS.get(trigger, NO_PARAMETERS)
    given = rule["action"].get("parameters", {})
    return [
        *shape(rule["trigger"].get("parameters", {}), wanted, "trigger.parameters"),
        *criteria_problems(rule.get("criteria", {}), payload),
        *call_problems(pack.actions, rule["action"]["ref"], given, "action.parameters"),
        *_template_problems(given, payload),
        *_enabled_problems(rule),
    ]


def criteria_problems(criteria: Document, payload: set[str]) -> list[str]:
    """Each criterion has a known operator and a pattern, and asks for something in the payload."""
    return [
        f"criteria.{key}{problem}"
        for key, criterion in criteria.items()
        for problem in _criterion_problems(key, criterion, payload)
    ]


def _criterion_problems(key: str, criterion: Document, payload: set[str]) -> list[str]:
    problems = []
    asked = re.fullmatch(r"trigger\.(\w+)[.\w]*(?:#\d+)?", key)
    if not asked or asked.group(1) not in payload:
        problems.append(f": is not in the payload ({', '.join(sorted(payload))})")
    if criterion.get("type") not in OPERATORS:
        problems.append(f".type: {criterion.get('type')!r} is no operator")
    if criterion.get("pattern") is None:
        problems.append(".pattern: is missing")
    return problems


def _template_problems(given: Document, payload: set[str]) -> list[str]:
    templates = {key: text for key, text in given.items() if EXPRESSION.search(str(text))}
    return [
        f"action.parameters.{key}: trigger.{name} is not in the payload"
        for key, text in templates.items()
        for name in _IN_TRIGGER.findall(str(text))
        if name not in payload
    ] + [
        f"action.parameters.{key}: trigger{path}: {name} is a method, ['{name}'] is in the payload"
        for key, text in templates.items()
        for path in _BY_DOT.findall(str(text))
        for name in path.split(".")
        if hasattr(dict, name)
    ]


def _enabled_problems(rule: Document) -> list[str]:
    harmless = rule["action"]["ref"] in READ_ONLY or rule["name"] in RECOVERY
    if rule["enabled"] and not harmless:
        return ["enabled: a rule that changes machines must ship disabled"]
    return []
