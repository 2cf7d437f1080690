# SPDX-License-Identifier: Apache-2.0
"""The attribute registry of a BIOS: what a value may be (DMTF DSP8010, AttributeRegistry)."""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Callable

from edgetune.net.bmc.answers import Values
from edgetune.net.bmc.payload import BmcError, at, list_at, said, same, text_at

_FORBIDS = {
    "ReadOnly": "read-only",
    "Immutable": "fixed",
    "GrayOut": "grayed out",
    "Hidden": "hidden",
}
_ORDER: Mapping[str, Callable[[float, float], bool]] = {
    "GTR": operator.gt,
    "GEQ": operator.ge,
    "LSS": operator.lt,
    "LEQ": operator.le,
}
_JOINS: Mapping[str, Callable[[bool, bool], bool]] = {"AND": operator.and_, "OR": operator.or_}
_VALUE = "CurrentValue"
_MOST_OFFERED = 10
_MOST_TERMS = 3


class Registry:
    """The attributes of one BIOS; what it says of them is not believed further than its types."""

    def __init__(self, data: Mapping[str, object]) -> None:
        entries = list_at(data, "RegistryEntries", "Attributes")
        if not entries:
            raise BmcError("garbage", "the attribute registry has no attributes")
        # Name: in the registries of a Gen9.
        named = {text_at(e, "AttributeName") or text_at(e, "Name"): e for e in entries}
        self._entries = {name: _as_shown(entry) for name, entry in named.items() if name}
        self._rules: dict[tuple[str, str], list[object]] = {}
        for entry in list_at(data, "RegistryEntries", "Dependencies"):
            rule = at(entry, "Dependency")
            if text_at(entry, "Type") == "Map" and list_at(rule, "MapFrom"):
                target = (text_at(rule, "MapToAttribute"), text_at(rule, "MapToProperty"))
                self._rules.setdefault(target, []).append(rule)

    def is_secret(self, name: str) -> bool:
        """Whether the attribute is a password."""
        return text_at(self._entries.get(name), "Type") == "Password"

    def values(self, name: str) -> dict[str, str]:
        """What an enumeration may be: the name and the displayed name of each value."""
        listed = list_at(self._entries.get(name), "Value")
        return {text_at(v, "ValueName"): text_at(v, "ValueDisplayName") for v in listed}

    def displayed(self, pattern: str) -> list[str]:
        """Names of the attributes whose displayed name matches, whatever its case."""
        return [
            name
            for name, entry in self._entries.items()
            if re.search(pattern, text_at(entry, "DisplayName"), re.IGNORECASE)
        ]

    def offers(self, pattern: str) -> str:
        """The attributes whose name or displayed name matches, with their values, as one text."""
        offered = dict.fromkeys(self.displayed(pattern))
        offered.update((n, None) for n in self._entries if re.search(pattern, n, re.IGNORECASE))
        texts = [f"{name} ({', '.join(self.values(name))})" for name in [*offered][:_MOST_OFFERED]]
        return "; ".join(texts)

    def typed(self, name: str, text: object) -> object:
        """A value as the attribute takes it; a text that does not fit its type stays as it is."""
        kind = text_at(self._entries.get(name), "Type")
        if kind == "Integer" and re.fullmatch(r"-?\d{1,18}", str(text)):
            return int(str(text))
        if kind == "Boolean" and str(text).lower() in ("true", "false"):
            return str(text).lower() == "true"
        return text

    def problem(
        self,
        wanted: Values,
        current: Values,
        others: Values = MappingProxyType({}),
        derived: Collection[str] = (),
    ) -> str | None:
        """Why these values cannot be set together on a machine with these attributes, or None.

        ``others`` are what is set beside them, or waits for the same boot. Those of `derived`
        are taken for what they come to by themselves.
        """
        after = {**current, **others, **wanted}
        for name, value in wanted.items():
            if name not in self._entries:
                return f"{name} is not in the attribute registry"
            if name in derived:
                continue
            why = self._locked(name, current, after) or _misfit(self._by_then(name, after), value)
            if why:
                return f"{name}: {why}"
        return self._side_effect(wanted, {**current, **others}, derived)

    def derived(self, wanted: Values, current: Values, back: Collection[str] = ()) -> set[str]:
        """The names in ``wanted`` that come by themselves, and cannot be asked for with the others.

        A system profile locks what it sets. By then a rule locks each of these, and another one
        says that it has the wanted value. What that says of now and is not so, no boot makes so.
        Of those that go ``back`` it may not have been read yet; and where they are locked by no
        means now, it is not asked: what was there before is what the profile made of it.
        """
        after = {**current, **wanted}

        def comes(name: str, value: object) -> bool:
            if not any(self._raises(name, flag, after) for flag in _FORBIDS):
                return False
            if name in back and not self._locked(name, current, current):
                return True
            is_vain = not same(current.get(name), value) and self.tells(name, value, current)
            return self.tells(name, value, after) and (name in back or not is_vain)

        return {name for name, value in wanted.items() if comes(name, value)}

    def tells(self, name: str, value: object, values: Values) -> bool:
        """Whether a rule says that an attribute comes to this value beside these."""
        return same(value, at(self._rule(name, _VALUE, values), "MapToValue"))

    def _locked(self, name: str, current: Values, after: Values) -> str | None:
        """Why an attribute cannot be set by then, or None.

        The flags of a registry may be of this moment, as those of an iDRAC: one that a rule raises
        now is down when that rule no longer holds.
        """
        for flag, word in _FORBIDS.items():
            rule = self._rule(name, flag, after)
            if self._raises(name, flag, after):
                return f"is {word} while {self._condition(rule, after)}"
            is_raised = at(self._entries.get(name), flag) is True
            if rule is None and is_raised and not self._raises(name, flag, current):
                return f"is {word}"
        return None

    def _by_then(self, name: str, values: Values) -> object:
        """An attribute as rules make it with these values: its choices, its bounds."""
        entry = self._entries[name]
        properties = [what for attribute, what in self._rules if attribute == name]
        rules = [(what, self._rule(name, what, values)) for what in properties]
        targets = {what: at(rule, "MapToValue") for what, rule in rules if rule}
        return {**entry, **targets} if isinstance(entry, Mapping) else entry

    def _side_effect(self, wanted: Values, before: Values, derived: Collection[str]) -> str | None:
        """What would change beside what is wanted."""
        after = {**before, **wanted}
        for (name, what), rules in self._rules.items():
            if what != _VALUE or name not in after or name in derived:
                continue
            for rule in rules:
                value = at(rule, "MapToValue")
                forced = self._holds(rule, after) and not same(after[name], value)
                if forced and (name in wanted or not self._holds(rule, before)):
                    why = self._condition(rule, after)
                    return f"{name} would be {said(value)}, not {said(after[name])}: {why}"
        return None

    def _rule(self, name: str, what: str, values: Values) -> object:
        """What tells this property of an attribute with these values, the last that does; None."""
        rules = reversed(self._rules.get((name, what), []))
        return next((rule for rule in rules if self._holds(rule, values)), None)

    def _raises(self, name: str, flag: str, values: Values) -> bool:
        return same(at(self._rule(name, flag, values), "MapToValue"), True)

    def _holds(self, rule: object, values: Values) -> bool:
        """Whether the conditions of a rule are met.

        MapTerms joins them: it stands between two (Lenovo), or as one or several operators behind
        what they join, as in postfix notation (AMI, Supermicro). An iDRAC has none and means OR:
        no registry of it would be true otherwise.
        """
        terms = list_at(rule, "MapFrom")
        met = [self._is_met(term, values) for term in terms]
        joins = [text_at(term, "MapTerms").replace(" ", "").split(",") for term in terms]
        if terms and joins[0] != [""]:
            joins = [[""], *joins[:-1]]
        stack: list[bool] = []
        for one, operators in zip(met, joins):
            stack.append(one)
            for word in filter(_JOINS.get, operators[: len(stack) - 1]):
                last = stack.pop()
                stack[-1] = _JOINS[word](stack[-1], last)
        return any(stack)

    def _condition(self, rule: object, values: Values) -> str:
        """The conditions of a rule that are met, as one text."""
        met = [term for term in list_at(rule, "MapFrom") if self._is_met(term, values)]
        signs = {"EQU": "is", "NEQ": "is not", "GTR": ">", "GEQ": ">=", "LSS": "<", "LEQ": "<="}
        return ", ".join(
            f"{text_at(term, 'MapFromAttribute')} "
            f"{signs.get(text_at(term, 'MapFromCondition'), '?')} {said(at(term, 'MapFromValue'))}"
            for term in met[:_MOST_TERMS]
        )

    def _is_met(self, term: object, values: Values) -> bool:
        name, what = text_at(term, "MapFromAttribute"), text_at(term, "MapFromProperty")
        value = values.get(name) if what == _VALUE else at(self._entries.get(name), what)
        condition, other = text_at(term, "MapFromCondition"), at(term, "MapFromValue")
        if condition in _ORDER and value is not None and other is not None:
            low, high = _number(value), _number(other)
            return low is not None and high is not None and _ORDER[condition](low, high)
        return same(value, other) == (condition == "EQU") and condition in ("EQU", "NEQ")


def _as_shown(entry: object) -> object:
    """An attribute with its values named as the BIOS shows and takes them.

    A Supermicro numbers them, and means the displayed names (NVIDIA/libredfish, supermicro.rs).
    """
    values, default = list_at(entry, "Value"), at(entry, "DefaultValue")
    names, shown = ([text_at(v, n) for v in values] for n in ("ValueName", "ValueDisplayName"))
    are_shown = default in shown and "" not in shown and len(set(shown)) == len(shown)
    if default in names or not are_shown or not isinstance(entry, Mapping):
        return entry
    pairs = zip(values, shown)
    named = [{**value, "ValueName": name} for value, name in pairs if isinstance(value, dict)]
    return {**entry, "Value": named}


def _misfit(entry: object, value: object) -> str | None:
    """Why a value does not fit the type of an attribute, or None."""
    kind = text_at(entry, "Type")
    checks = {"Enumeration": _no_choice, "Integer": _no_integer, "String": _no_string}
    if kind in checks:
        return checks[kind](entry, value)
    if kind == "Boolean":
        return None if isinstance(value, bool) else f"{said(value)!r} is neither true nor false"
    return f"is of type {kind!r}, which is not set here"


def _no_choice(entry: object, value: object) -> str | None:
    choices = [text_at(choice, "ValueName") for choice in list_at(entry, "Value")]
    return None if value in choices else f"{said(value)!r} is none of: {', '.join(choices)}"


def _no_integer(entry: object, value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{said(value)!r} is no whole number"
    low, high = (_number(at(entry, name)) for name in ("LowerBound", "UpperBound"))
    if low is not None and value < low:
        return f"{value} is below {low}"
    if high is not None and value > high:
        return f"{value} is above {high}"
    step = at(entry, "ScalarIncrement")
    if isinstance(step, int) and step > 1 and (value - (low or 0)) % step:
        return f"{value} is not in steps of {step}"
    return None


def _no_string(entry: object, value: object) -> str | None:
    if not isinstance(value, str):
        return f"{said(value)!r} is no text"
    low, high = (_number(at(entry, name)) for name in ("MinLength", "MaxLength"))
    if low is not None and len(value) < low:
        return f"is shorter than {low} characters"
    if high is not None and len(value) > high:
        return f"is longer than {high} characters"
    return None


def _number(value: object) -> float | None:
    """None for what is no number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    return None
