# SPDX-License-Identifier: Apache-2.0
"""What StackStorm has to do by itself for rollouts under way, and what of that is off; and where in
chat an execution was asked for.

Registering the pack again, as an upgrade does, switches every rule to what its file says; a sensor
may be off, unconfigured or dead. Then nothing fails, and nothing happens. The local runner has no
StackStorm to ask; it says itself what it serves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from edgetune import PACK
from edgetune.base import clock
from edgetune.base.documents.head import ENDED, Head
from edgetune.base.documents.stackstorm import KeyValue, Rule, Sensor
from edgetune.base.durations import DAY, roughly
from edgetune.base.errors import EdgetuneError
from edgetune.base.fields import Fields
from edgetune.base.sanitize import one_line
from edgetune.rollout.context import Context
from edgetune.rollout.store.heartbeat import GUARD, Heartbeat
from edgetune.rollout.store.stackstorm import StackStorm, entries, entry

OVERRIDES = f"/opt/stackstorm/overrides/{PACK}.yaml"
QUIET = 180.0
"""Seconds without a look of the guard, which looks every 30 s, before that is told."""
SENSOR = "RolloutGuard"
GUARD_PROBLEM = f"{PACK}.guard_problem"
"""The key of StackStorm's datastore in which the sensor leaves for a while why it cannot look."""
SAMPLED_EVERY = 60
"""Seconds between two samples of PoPs with a rollout by the rule sample_running, as it ships."""
_UNITS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": DAY, "weeks": 7 * DAY}

ALWAYS = {
    "recover_left": "what a workflow leaves that fails or is canceled stays as it is",
    "recover_orphans": "what a workflow leaves that dies stays as it is",
    "sample_running": "hosts are sampled only while a workflow of their rollout does it",
    "roll_back_degraded": "hosts that the tuning makes ill are not rolled back",
}
SOAKING = {"advance_soaking": "soaks are not looked at, promoted or rolled back"}


def needed_rules(heads: Iterable[Head]) -> dict[str, str]:
    """The rules that rollouts under way need, with what happens while one is off."""
    under_way = [head for head in heads if head.state not in ENDED]
    if all(head.wait for head in under_way):
        return dict(ALWAYS) if under_way else {}
    return {**ALWAYS, **SOAKING}


class Off(NamedTuple):
    """What does not go on by itself, and what a person can do, if that is known."""

    what: str
    advice: str = ""


def what_is_off(context: Context, needed: Mapping[str, str]) -> list[str]:
    """In a sentence each: rules that are needed and off, and a guard that does not look."""
    every = find_off(context, needed)
    return [f"{part.what} ({part.advice})." if part.advice else f"{part.what}." for part in every]


def find_off(context: Context, needed: Mapping[str, str]) -> list[Off]:
    """The same, each with what a person can do."""
    api = context.stackstorm
    if api is None or not needed:
        return []
    return [*_rules_off(api, needed), *_guard_off(api, context)]


def sampled_every(context: Context) -> float:
    """Seconds between two samples by the rule sample_running, as its timer has them, or as it ships
    where that cannot be asked or is no interval; 0 in the local runner, which is told that when it
    serves rules."""
    if context.stackstorm is None:
        return 0.0
    with suppress(EdgetuneError):
        for rule in _rules(context.stackstorm):
            if rule.name == "sample_running":
                timer = Fields(rule.trigger, rule.name).inside("parameters")
                return timer.number("delta") * _UNITS[timer.text("unit", choices=_UNITS)]
    return SAMPLED_EVERY


def _rules(api: StackStorm) -> list[Rule]:
    rules = entries(Rule, api.call("GET", "/rules", params={"pack": PACK, "limit": "100"}))
    return [rule for rule in rules if rule.pack == PACK]


def _rules_off(api: StackStorm, needed: Mapping[str, str]) -> list[Off]:
    try:
        on = {rule.name for rule in _rules(api) if rule.enabled}
    except EdgetuneError as error:
        return [Off(f"Which rules are on is not known: {error}")]
    return [
        Off(
            f"The rule {name} is off, so {why}",
            f"st2 rule enable {PACK}.{name}; {OVERRIDES} keeps it on",
        )
        for name, why in needed.items()
        if name not in on
    ]


def _guard_off(api: StackStorm, context: Context) -> list[Off]:
    try:
        last = context.heartbeats.last(GUARD)
    except EdgetuneError as error:
        return [Off(f"Whether the sensor RolloutGuard looks is not known: {error}")]
    why, advice = _quiet(last, clock.wall()), ""
    if why.startswith("has "):
        why, advice = _silent(api, why)
    return [Off(f"The sensor RolloutGuard {why}, so illness is not noticed", advice)] if why else []


def _silent(api: StackStorm, why: str) -> tuple[str, str]:
    """Why the guard leaves no heartbeat, as far as StackStorm tells; what a person can do."""
    # With RBAC a user may not see them.
    with suppress(EdgetuneError):
        problem = api.call("GET", f"/keys/{GUARD_PROBLEM}", (404,))
        if problem is not None:
            return f"cannot look: {one_line(entry(KeyValue, problem).value)}", ""
        sensor = api.call("GET", f"/sensortypes/{PACK}.{SENSOR}", (404,))
        if sensor is None or not entry(Sensor, sensor).enabled:
            return "is off", f"st2 sensor enable {PACK}.{SENSOR}"
        return why, "it is on: the log of st2sensorcontainer tells"
    return why, ""


def _quiet(last: Heartbeat | None, now: float) -> str:
    if last is None:
        return "has never looked"
    if now - last.time > QUIET:
        return f"has not looked for {roughly(round(now - last.time))}"
    return f"cannot look: {last.problem}" if last.problem else ""


_MESSAGE = r"[0-9]{1,20}[.][0-9]{1,9}"
"""The id of a message in Slack."""


def thread_of(context: Context, channel: str, execution: str) -> str:
    """``CHANNEL|MESSAGE`` where a message in that channel began the execution, else the channel.

    hubot hands StackStorm the message with what the execution is to be announced by
    (``source_context``). Slack has a thread for each message; other chats know no such ids.
    """
    api = context.stackstorm
    if not (channel and execution and api):
        return channel
    # Without an answer, or the right to ask, the channel does.
    with suppress(EdgetuneError):
        answer = api.call("GET", f"/executions/{execution}?include_attributes=liveaction")
        notify = Fields(answer, "execution").inside("liveaction").inside("notify", {})
        asked = notify.inside("on-complete", {}).inside("data", {})
        message = str(asked.inside("source_context", {}).raw("id", ""))
        if asked.raw("source_channel", "") == channel and re.fullmatch(_MESSAGE, message):
            return f"{channel}|{message}"
    return channel
