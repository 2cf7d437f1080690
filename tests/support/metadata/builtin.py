# SPDX-License-Identifier: Apache-2.0
"""What a StackStorm knows before any pack is installed: runners, triggers, operators, policies.

The facts are those of StackStorm 3.10dev: contrib/runners/*/runner.yaml,
st2common/constants/triggers.py, st2common/operators.py, st2common/policies/meta.
"""

from __future__ import annotations

from tests.support.metadata.schemas import COUNT, NUMBER, TEXT, TEXTS, Schema, closed

# Runner to its parameters, of which an action may override only the keywords below.
RUNNERS: dict[str, Schema] = {
    "python-script": {
        "content_version": {"type": "string"},
        "debug": {"type": "boolean"},
        "env": {"type": "object"},
        "log_level": {
            "type": "string",
            "enum": ["AUDIT", "CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG"],
        },
        "timeout": {"type": "integer", "minimum": 1},
    },
    "orquesta": {"notify": {"type": "array"}},
    "announcement": {
        "experimental": {"type": "boolean", "enum": [True]},
        "route": {"type": "string", "minLength": 1},
    },
}
OVERRIDABLE = {"default", "description", "enum", "immutable", "required"}

_TIMER = {"executed_at", "schedule"}
_WHEN = {"type": ["integer", "string"]}

# Trigger to what a rule may ask of its payload (`trigger.NAME`), of those that the pack uses.
_EXECUTION = (
    "execution_id status start_timestamp action_name action_ref runner_ref parameters result"
)
TRIGGER_PAYLOADS: dict[str, set[str]] = {
    "core.st2.generic.actiontrigger": {*_EXECUTION.split()},
    "core.st2.IntervalTimer": _TIMER,
    "core.st2.CronTimer": _TIMER,
}
NO_PARAMETERS = closed("")
TRIGGER_PARAMETERS: dict[str, Schema] = {
    "core.st2.IntervalTimer": closed(
        "unit delta",
        unit={"enum": ["weeks", "days", "hours", "minutes", "seconds"]},
        delta={"type": "integer", "minimum": 1},
        timezone=TEXT,
    ),
    "core.st2.CronTimer": closed(
        "timezone minute",
        timezone=TEXT,
        hour={**_WHEN, "minimum": 0, "maximum": 23},
        minute={**_WHEN, "minimum": 0, "maximum": 59},
        second={**_WHEN, "minimum": 0, "maximum": 59},
    ),
}

_OPERATORS = """
    contains endswith eq equals exists greaterthan gt icontains iendswith iequals ieq in incontains
    inside iregex istartswith lessthan lt matchregex matchwildcard ncontains neq nequals nexists nin
    ninside regex search startswith td_gt td_lt timediff_gt timediff_lt
"""
OPERATORS = set(_OPERATORS.split())

_THRESHOLD = {"threshold": COUNT, "action": {"enum": ["delay", "cancel"]}}
POLICY_PARAMETERS: dict[str, Schema] = {
    "action.concurrency": closed("threshold", **_THRESHOLD),
    "action.concurrency.attr": closed(
        "threshold attributes", attributes={**TEXTS, "minItems": 1}, **_THRESHOLD
    ),
    "action.retry": closed(
        "retry_on max_retry_count",
        retry_on={"enum": ["failure", "timeout"]},
        max_retry_count={"type": "integer", "minimum": 1, "maximum": 5},
        delay={**NUMBER, "minimum": 0, "maximum": 120},
    ),
}

# The parts of a sensor that StackStorm calls; all of them must be there.
SENSOR_METHODS = {"setup", "cleanup", "add_trigger", "update_trigger", "remove_trigger"}
