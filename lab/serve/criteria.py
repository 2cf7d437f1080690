# SPDX-License-Identifier: Apache-2.0
"""Criteria of rules. Operators are those of st2common/operators.py, with their oddities."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import Any, Callable

from edgetune.base.fields import near
from lab.runner.templates import is_template

__all__ = ["Criterion", "criterion"]

Operator = Callable[[Any, Any], bool]

_NAMES: dict[str, Operator] = {
    "eq equals": lambda value, pattern: value == pattern,
    "neq nequals": lambda value, pattern: value != pattern,
    "ieq iequals": lambda value, pattern: value.lower() == pattern.lower(),
    "contains": lambda value, pattern: pattern in value,
    "icontains": lambda value, pattern: pattern.lower() in value.lower(),
    "ncontains": lambda value, pattern: pattern not in value,
    "incontains": lambda value, pattern: pattern.lower() not in value.lower(),
    "startswith": lambda value, pattern: value.startswith(pattern),
    "istartswith": lambda value, pattern: value.lower().startswith(pattern.lower()),
    "endswith": lambda value, pattern: value.endswith(pattern),
    "iendswith": lambda value, pattern: value.lower().endswith(pattern.lower()),
    "lt lessthan": lambda value, pattern: value < pattern,
    "gt greaterthan": lambda value, pattern: value > pattern,
    "matchwildcard": fnmatch.fnmatch,
    "matchregex": lambda value, pattern: bool(re.match(pattern, value, re.DOTALL)),
    "regex": lambda value, pattern: bool(re.search(pattern, value)),
    "iregex": lambda value, pattern: bool(re.search(pattern, value, re.IGNORECASE)),
    "exists": lambda value, pattern: value is not None,
    "nexists": lambda value, pattern: value is None,
    "in inside": lambda value, pattern: value in pattern,
    "nin ninside": lambda value, pattern: value not in pattern,
}
_OPERATORS = {name: operator for names, operator in _NAMES.items() for name in names.split()}

# A second criterion of one value is written `trigger.name#2`.
_KEY = re.compile(r"trigger((?:\.\w+)+)(?:#.*)?")


@dataclass(frozen=True)
class Criterion:
    """One condition on the payload of a trigger."""

    key: str
    path: tuple[str, ...]
    operator: Operator
    pattern: Any

    def matches(self, payload: Any) -> bool:
        """Raises ValueError where the value cannot be compared; a missing value is None."""
        value = payload
        for name in self.path:
            value = value.get(name) if isinstance(value, dict) else None
        try:
            return self.operator(value, self.pattern)
        except (AttributeError, TypeError, re.error) as error:
            raise ValueError(f"criteria.{self.key}: {error}") from error


def criterion(key: str, given: Any) -> Criterion:
    """Read one criterion; raises ValueError that names the field."""
    found = _KEY.fullmatch(key)
    if not found:
        raise ValueError(f"criteria.{key}: must be trigger.NAME")
    given = given if isinstance(given, dict) else {}
    name, pattern = given.get("type"), given.get("pattern")
    if name not in _OPERATORS:
        hint = near(str(name), _OPERATORS)
        raise ValueError(f'criteria.{key}.type: the local runner has no operator "{name}"{hint}')
    if pattern is None or is_template(pattern):
        raise ValueError(f"criteria.{key}.pattern: must be a value, and no template")
    return Criterion(key, tuple(found[1].strip(".").split(".")), _OPERATORS[name], pattern)
