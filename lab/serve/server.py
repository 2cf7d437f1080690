# SPDX-License-Identifier: Apache-2.0
"""The loop of `edgetune serve`: triggers in, executions out."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from lab.runner.engine import ACTION_TRIGGER, Engine
from lab.runner.execution import new_id
from lab.runner.inbox import Inbox
from lab.runner.metadata import MetadataError
from lab.runner.parameters import ParameterError
from lab.runner.schemas import problems
from lab.serve.log import Clock, Log
from lab.serve.rules import TIMERS, Rule, RuleBook, Switches
from lab.serve.sensors import SensorKeeper
from lab.serve.timers import Interval, Sooner, Timer, timer

__all__ = ["Server"]

Values = dict[str, Any]
_TOLD = 160


class _Ticking:
    """A timer of rules with the same parameters. One that hurries ticks every so many seconds in
    any case, for the rules whose last execution has ended.
    """

    def __init__(self, rules: Sequence[Rule], now: datetime, every: float | None) -> None:
        self.rules = rules
        self.hurries = every is not None
        self.kind = rules[0].trigger
        self.parameters = rules[0].trigger_parameters
        self._timer: Timer = timer(self.kind, self.parameters, now)
        if every:
            self._timer = Sooner(self._timer, Interval(timedelta(seconds=every), now))
        self._due = self._timer.next_after(now)

    def fires(self, now: datetime) -> bool:
        """Whether its time has come; what was missed meanwhile is made up for once."""
        if self._due is None or now < self._due:
            return False
        self._due = self._timer.next_after(now)
        return True


class Server:
    """Serves one engine's pack; only `tick` is called again and again, by one thread."""

    def __init__(
        self,
        engine: Engine,
        book: RuleBook,
        switches: Switches,
        keepers: Sequence[SensorKeeper],
        inbox: Inbox,
        log: Log,
        clock: Clock,
        every: float | None = None,
    ) -> None:
        self._engine = engine
        self._book = book
        self._switches = switches
        self._keepers = keepers
        self._inbox = inbox
        self._log = log
        self._clock = clock
        self._executions: list[threading.Thread] = []
        self._timers = self._make_timers(clock(), every)

    def tick(self) -> None:
        """Fire the timers that are due, take what was posted, look after the sensors."""
        now = self._clock()
        for ticking in self._timers:
            if ticking.fires(now):
                payload = {"executed_at": str(now), "schedule": None}
                running = self._running() if ticking.hurries else set()
                rules = [rule for rule in ticking.rules if rule.name not in running]
                self._handle(ticking.kind, payload, rules)
        for trigger, payload in self._inbox.take():
            self._receive(trigger, payload)
        for keeper in self._keepers:
            keeper.tend(now.timestamp())
        self._executions = [thread for thread in self._executions if thread.is_alive()]

    @property
    def busy(self) -> int:
        """How many executions of rules run."""
        return sum(thread.is_alive() for thread in self._executions)

    def _running(self) -> set[str]:
        """Names of the rules whose executions run."""
        return {thread.name for thread in self._executions if thread.is_alive()}

    def stop(self) -> None:
        """End the sensors, and cancel executions: actions that run are left to finish."""
        self._engine.cancel()
        for keeper in self._keepers:
            keeper.terminate()
        for keeper in self._keepers:
            keeper.close()

    def _make_timers(self, now: datetime, every: float | None) -> list[_Ticking]:
        """One for rules of the same parameters, and another for those that are to hurry."""
        timed: dict[tuple[str, bool], list[Rule]] = {}
        for rule in self._book.rules.values():
            if rule.trigger in TIMERS:
                parameters = json.dumps([rule.trigger, rule.trigger_parameters], sort_keys=True)
                hurries = rule.name in self._switches.always
                timed.setdefault((parameters, hurries), []).append(rule)
        return [
            _Ticking(rules, now, every if hurries else None)
            for (_, hurries), rules in timed.items()
        ]

    def _receive(self, trigger: str, payload: Any) -> None:
        """Drop what StackStorm drops: unknown triggers, and payloads that do not fit the schema."""
        schema = self._book.schema(trigger)
        wrong = ["there is no such trigger"] if schema is None else []
        if schema:
            wrong = [f"payload.{field}: {why}" for field, why in problems(schema, payload)]
        if wrong:
            self._log.line("trigger", f"{trigger} dropped: {wrong[0]}")
        else:
            of_trigger = [rule for rule in self._book.rules.values() if rule.trigger == trigger]
            self._handle(trigger, payload, of_trigger)

    def _handle(self, trigger: str, payload: Any, candidates: Sequence[Rule]) -> None:
        instance = new_id()
        rules = [
            rule
            for rule in candidates
            if self._switches.is_on(rule) and self._matches(rule, payload)
        ]
        # Whatever ends is a trigger, and timers of disabled rules go on: not worth a line each.
        if rules or trigger in self._book.payload_schemas:
            self._log.trigger(f"{trigger} {instance} {_told(trigger, payload, rules)}")
        for rule in rules:
            self._enforce(rule, instance, payload)

    def _matches(self, rule: Rule, payload: Any) -> bool:
        try:
            return rule.matches(payload)
        except ValueError as error:
            self._log.line("rule", f"{rule.name} failed: {error}")
            return False

    def _enforce(self, rule: Rule, instance: str, payload: Any) -> None:
        context = {
            "user": self._engine.config.get("system_user", "stanley"),
            "rule": {"name": rule.name, "ref": rule.ref},
            "trigger_instance": {"id": instance},
        }
        try:
            execution = self._engine.request(
                rule.action, rule.parameters, context=context, scope={"trigger": payload}
            )
        except (MetadataError, ParameterError) as error:
            self._log.line("rule", f"{rule.name} failed: {error}")
            return
        self._log.fired(rule, execution)
        thread = threading.Thread(
            target=self._engine.execute, args=[execution], name=rule.name, daemon=True
        )
        thread.start()
        self._executions.append(thread)


def _told(trigger: str, payload: Any, rules: Sequence[Rule]) -> str:
    """What tells one instance of a trigger from another, in short."""
    if trigger in TIMERS:
        return ", ".join(f"{name} {value}" for name, value in rules[0].trigger_parameters.items())
    if trigger == ACTION_TRIGGER:
        return f"{payload['action_ref']} {payload['execution_id']} {payload['status']}"
    return json.dumps(payload, ensure_ascii=False)[:_TOLD]
