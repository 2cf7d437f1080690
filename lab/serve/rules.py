# SPDX-License-Identifier: Apache-2.0
"""The pack's rules and triggers, read and checked as a whole before anything is served."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from edgetune.base.fields import near
from lab.runner.engine import ACTION_TRIGGER
from lab.runner.metadata import MetadataError, Pack, Schema, load_yaml
from lab.runner.parameters import missing_and_unexpected
from lab.serve.criteria import Criterion, criterion
from lab.serve.timers import CRON_TIMER, INTERVAL_TIMER, timer
from lab.usage import UsageError

__all__ = ["TIMERS", "Rule", "RuleBook", "Switches"]

Values = dict[str, Any]

TIMERS = (INTERVAL_TIMER, CRON_TIMER)


@dataclass(frozen=True)
class Rule:
    """`enabled` is what its file says; `parameters` are those of the action, as templates."""

    name: str
    ref: str
    enabled: bool
    trigger: str
    trigger_parameters: Values
    criteria: tuple[Criterion, ...]
    action: str
    parameters: Values

    def matches(self, payload: Any) -> bool:
        """Whether all criteria hold; raises ValueError where one cannot be compared."""
        if self.criteria and not payload:
            return False
        return all(criterion.matches(payload) for criterion in self.criteria)


class RuleBook:
    """Rules by name, and the payload schemas of the pack's triggers by ref.

    Raises MetadataError that names file and field, also for a disabled rule.
    """

    def __init__(self, pack: Pack) -> None:
        self._pack = pack
        self.payload_schemas = {
            f"{pack.ref}.{trigger['name']}": trigger.get("payload_schema") or {}
            for trigger in map(load_yaml, _files(pack, "triggers"))
        }
        rules = [self._rule(file) for file in _files(pack, "rules")]
        self.rules = {rule.name: rule for rule in rules}

    def schema(self, trigger: str) -> Schema | None:
        """Of the payload, empty for StackStorm's own triggers; None if there is no such trigger."""
        if trigger == ACTION_TRIGGER or trigger in TIMERS:
            return {}
        return self.payload_schemas.get(trigger)

    def rule(self, name: str) -> Rule:
        """The rule of this name or ref; raises UsageError with the nearest name."""
        found = self.rules.get(name[len(f"{self._pack.ref}.") :] if "." in name else name)
        if found is None:
            hint = near(name, self.rules)
            raise UsageError(f'unknown rule "{name}"{hint}', "edgetune rule list")
        return found

    def _rule(self, file: Path) -> Rule:
        given = load_yaml(file)
        try:
            rule = Rule(
                name=given["name"],
                ref=f"{self._pack.ref}.{given['name']}",
                enabled=given.get("enabled", False),
                trigger=given["trigger"]["type"],
                trigger_parameters=given["trigger"].get("parameters") or {},
                criteria=tuple(criterion(*item) for item in (given.get("criteria") or {}).items()),
                action=given["action"]["ref"],
                parameters=given["action"].get("parameters") or {},
            )
            self._check(rule)
        except KeyError as error:
            raise MetadataError(f"{file}: {error.args[0]} is missing") from error
        except ValueError as error:
            raise MetadataError(f"{file}: {error}") from error
        return rule

    def _check(self, rule: Rule) -> None:
        if self.schema(rule.trigger) is None:
            hint = near(rule.trigger, [*self.payload_schemas, *TIMERS])
            raise ValueError(f'trigger: the local runner has no "{rule.trigger}"{hint}')
        if rule.trigger in TIMERS:
            timer(rule.trigger, rule.trigger_parameters, datetime.now(timezone.utc))
        elif rule.trigger_parameters:
            raise ValueError(f"trigger.parameters: {rule.trigger} has none")
        action = self._pack.action(rule.action)
        missing, unexpected = missing_and_unexpected(action, rule.parameters)
        for name in missing + unexpected:
            what = "is missing" if name in missing else f"is no parameter of {action.ref}"
            raise ValueError(f"action.parameters.{name}: {what}")


class Switches:
    """Which rules are on: as their files say, unless a person said otherwise.

    What is said with `set` is kept in a file and holds at once, also in a server that runs;
    rules in `always` are on in any case.
    """

    def __init__(self, home: Path, always: Collection[str] = ()) -> None:
        self._file = home / "rules.json"
        self.always = always

    def is_on(self, rule: Rule) -> bool:
        said: bool = self._said().get(rule.name, rule.enabled)
        return said or rule.name in self.always

    def set(self, rule: Rule, enabled: bool) -> None:
        said = {**self._said(), rule.name: enabled}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps(said) + "\n", encoding="utf-8")
        draft.replace(self._file)

    def _said(self) -> dict[str, bool]:
        if not self._file.exists():
            return {}
        said: dict[str, bool] = load_yaml(self._file)
        return said


def _files(pack: Pack, folder: str) -> list[Path]:
    return sorted((pack.root / folder).glob("*.yaml"))
