# SPDX-License-Identifier: Apache-2.0
"""What a BIOS attribute may be: the checks of a BMC, and the registry that tells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .messages import Refused
from .personality import Personality

Values = Mapping[str, Any]


def check(personality: Personality, wanted: Values, standing: Values) -> None:
    """Refused for the first of `wanted` that this machine would not take.

    standing: the values that everything else has or will have at the next boot.
    """
    after = {**standing, **wanted}
    for name, value in wanted.items():
        check_one(personality, name, value, after)


def check_one(personality: Personality, name: str, value: Any, after: Values) -> None:
    attribute = personality.attributes.get(name)
    if attribute is None:
        raise Refused("unknown", name)
    if attribute.get("read_only") or _is_locked(personality, name, after):
        raise Refused("read_only", name)
    kind = attribute["type"]
    if not _fits_type(kind, value):
        raise Refused("wrong_type", value, name)
    if kind == "Enumeration" and value not in [pair[0] for pair in attribute["values"]]:
        raise Refused("not_in_list", value, name)
    if kind == "Integer" and not attribute["min"] <= value <= attribute["max"]:
        raise Refused("out_of_range", value, name)
    if kind == "String" and not attribute["min"] <= len(value) <= attribute["max"]:
        raise Refused("out_of_range", value, name)


def derived(personality: Personality, values: Values) -> Values:
    """What these values make of other attributes: a system profile sets those that it locks."""
    rules = [rule for rule in personality.dependencies if rule["is"] == "CurrentValue"]
    return {rule["then"]: rule["to"] for rule in rules if _holds(rule, values)}


def registry(personality: Personality, values: Values) -> dict[str, Any]:
    """RegistryEntries of the attribute registry; its flags are those of this moment."""
    attributes = [_entry(personality, name, values) for name in personality.attributes]
    dependencies = [_dependency(rule) for rule in personality.dependencies]
    return {"Attributes": attributes, "Dependencies": dependencies, "Menus": []}


def _fits_type(kind: str, value: Any) -> bool:
    if kind == "Integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, bool if kind == "Boolean" else str)


def _is_locked(personality: Personality, name: str, after: Values) -> bool:
    return bool(_flags(personality, name, after) - {"CurrentValue"})


def _flags(personality: Personality, name: str, values: Values) -> set[str]:
    rules = [rule for rule in personality.dependencies if rule["then"] == name]
    return {rule["is"] for rule in rules if _holds(rule, values)}


def _holds(rule: Mapping[str, Any], values: Values) -> bool:
    source, condition, value = rule["if"]
    return bool((values.get(source) == value) == (condition == "EQU"))


def _entry(personality: Personality, name: str, values: Values) -> dict[str, Any]:
    attribute = personality.attributes[name]
    kind = attribute["type"]
    entry: dict[str, Any] = {
        personality.name_key: name,
        "Type": kind,
        "DisplayName": attribute["display"],
        "MenuPath": attribute.get("menu", "./"),
        "ReadOnly": attribute.get("read_only", "ReadOnly" in _flags(personality, name, values)),
        "Immutable": False,
        "Hidden": False,
        "ResetRequired": True,
        "CurrentValue": None,
        "DefaultValue": attribute["value"],
    }
    if kind == "Enumeration":
        pairs = attribute["values"]
        entry["Value"] = [{"ValueName": one, "ValueDisplayName": two} for one, two in pairs]
    elif kind == "Integer":
        entry.update(LowerBound=attribute["min"], UpperBound=attribute["max"], ScalarIncrement=1)
    elif kind == "String":
        entry.update(MinLength=attribute["min"], MaxLength=attribute["max"], ValueExpression=None)
    return entry


def _dependency(rule: Mapping[str, Any]) -> dict[str, Any]:
    source, condition, value = rule["if"]
    source_is = {
        "MapFromAttribute": source,
        "MapFromProperty": "CurrentValue",
        "MapFromCondition": condition,
        "MapFromValue": value,
    }
    value = rule.get("to", True)
    target = {"MapToAttribute": rule["then"], "MapToProperty": rule["is"], "MapToValue": value}
    return {
        "Type": "Map",
        "DependencyFor": rule["then"],
        "Dependency": {"MapFrom": [source_is], **target},
    }
