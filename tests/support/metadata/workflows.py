# SPDX-License-Identifier: Apache-2.0
"""Orquesta definitions, held against the metadata of their own action and of those they call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.metadata.values import Document, call_problems, own_parameters

# The workflows that fan out: over rollouts or PoPs, a few at a time; hosts fan out in actions.
FAN_OUT = ("advance_campaign", "advance_soaking", "recover_orphans", "tune_congestion")
ENGINE = {"continue", "fail", "noop", "retry"}
NOOP: Document = {"runner_type": "noop", "parameters": {}, "output_schema": {"properties": {}}}

_FUNCTION = re.compile(r"\b(task|st2kv)\s*\(")
_CONTEXT = re.compile(r"\bctx\((\w+)\)")
_RESULT = re.compile(r"\bresult\(\)\.(result|output)\.(\w+)\b(?!\()")
_KEYS = {"python-script": "result", "orquesta": "output"}
# Why a task failed, which one task of each file tells: the others publish what they left and lead
# there. A workflow tells its own message. An action that was killed or took too long leaves no
# result to look into.
WHY = (
    "coalesce(switch(coalesce(ctx(failure)?.get(output)?.get(message), '') != '' => "
    "ctx(failure).output.message), ctx(step) + ': ' + coalesce(switch(isString("
    "ctx(failure)?.get(error)) => ctx(failure).error.replace('{', '(').replace('%', ' '), "
    "isDict(ctx(failure)?.get(result)) => ctx(failure).result.get(error)), 'no answer')) %>"
)
LEFT = "<% result() %>"
# Workflows whose every task would have to tell cost the engine much more: who calls them looks
# into their errors.
SILENT = ("roll_batch", "restore_batch")
FIRST_ERROR = (
    "batch <% ctx(batches) - ctx(end_batch) + ctx(batch) + 1 %> of <% ctx(batches) %>: "
    "<% coalesce(coalesce(result()?.get(errors), [])"
    ".where($.get(task_id) != null).select($.task_id + ': ' + coalesce("
    "switch(isDict($.get(result)?.get(result)) => $.result.result.get(error)), 'no answer'))"
    ".first(null), switch(coalesce(result()?.get(output)?.get(message), '') != '' => "
    "result().output.message + ', and left no answer'), coalesce(result()?.get(error), "
    "coalesce(result()?.get(errors), []).select($.get(message)).first(null), 'no answer')"
    ".replace('{', '(').replace('%', ' ')) %>"
)


def workflow_problems(name: str, flow: Document, actions: Mapping[str, Document]) -> list[str]:
    """Everything that orquesta itself does not look at before it starts."""
    called = {**actions, "core.noop": NOOP}
    return [
        *interface_problems(flow, actions[f"edgetune.{name}"]),
        *context_problems(flow),
        *delay_problems(flow, actions[f"edgetune.{name}"]),
        *order_problems(flow["tasks"]),
        *text_problems(flow),
        *explained(flow),
        *(_unlisted(flow, called) if name in SILENT else []),
        *(
            f"tasks.{task}.{problem}"
            for task, body in flow["tasks"].items()
            for problem in [
                *task_problems(name, body, called),
                *silence(name, task, body, called),
                *unheard(body),
            ]
        ),
    ]


def interface_problems(flow: Document, action: Document) -> list[str]:
    """Inputs are the action's parameters, outputs those of its output_schema."""
    pairs = (
        ("input", names_of(flow, "input"), set(own_parameters(action))),
        ("output", names_of(flow, "output"), set(action["output_schema"]["properties"])),
    )
    return [
        f"{field}: {name} is {'not in the metadata' if name in found else 'missing'}"
        for field, found, wanted in pairs
        for name in sorted(found ^ wanted)
    ]


def context_problems(flow: Document) -> list[str]:
    """What is published or put out has been given a value before the first task."""
    defined = names_of(flow, "input") | names_of(flow, "vars")
    used = set(_CONTEXT.findall(str(flow.get("output", []))))
    published = {
        name
        for body in flow["tasks"].values()
        for transition in body.get("next", [])
        for name in names_of(transition, "publish")
    }
    return [f"output: ctx({name}) is not in vars" for name in sorted(used - defined)] + [
        f"publish: {name} is not in vars" for name in sorted(published - defined)
    ]


def delay_problems(flow: Document, action: Document) -> list[str]:
    """Delays are whole seconds: StackStorm makes each `number` a float, which orquesta refuses."""
    whole = {
        f"<% ctx({name}) %>"
        for name, item in own_parameters(action).items()
        if item["type"] == "integer"
    }
    return [
        f"tasks.{task}.delay: {delay!r} may not be a whole number"
        for task, delay in _delays(flow["tasks"])
        if not isinstance(delay, int) and delay not in whole and "<% int(" not in delay
    ]


def _delays(tasks: Document) -> list[tuple[str, Any]]:
    return [(name, body["delay"]) for name, body in tasks.items() if "delay" in body]


def order_problems(tasks: Document) -> list[str]:
    """There is one task to start with, the first, and every other one follows from it."""
    followers = {name: set(_followers(body)) for name, body in tasks.items()}
    behind = set().union(*followers.values())
    starts = [name for name in tasks if name not in behind]
    first = next(iter(tasks))
    if starts != [first]:
        return [f"tasks: must start with {first} alone, not with {', '.join(starts) or 'none'}"]
    reached, ahead = {first}, [first]
    while ahead:
        new = followers.get(ahead.pop(), set()) - reached
        reached |= new
        ahead.extend(new)
    return [f"tasks.{name}: is never reached" for name in tasks if name not in reached] + [
        f"tasks: there is no task {name}" for name in sorted(reached - set(tasks) - ENGINE)
    ]


def text_problems(flow: Document) -> list[str]:
    """No function that StackStorm adds to orquesta: a workflow runs wherever orquesta does."""
    found = sorted({function for text in _texts(flow) for function in _FUNCTION.findall(text)})
    return [f"tasks: {function}() is not used here" for function in found]


def task_problems(name: str, body: Document, actions: Mapping[str, Document]) -> list[str]:
    """A task calls its action rightly, and takes from the result what is in it."""
    problems = []
    if "with" in body and name not in FAN_OUT:
        problems.append("with: fan out inside an action, over hosts, not here")
    ref = body.get("action", "core.noop")
    found = call_problems(actions, ref, body.get("input", {}), "input")
    return problems + found + ([] if ref not in actions else _result_problems(body, actions[ref]))


def _result_problems(body: Document, action: Document) -> list[str]:
    key = _KEYS.get(action["runner_type"], "")
    known = {(key, name) for name in action["output_schema"]["properties"]}
    return [
        f"next: result().{'.'.join(found)} is not in the output_schema"
        for text in _texts(body.get("next", []))
        for found in _RESULT.findall(text)
        if found not in known
    ]


_EXPLAINED = ("explain", "give_back")
"""Where a failure may lead: ``give_back`` leads on to ``explain``, however it ends."""


def silence(name: str, task: str, body: Document, actions: Mapping[str, Document]) -> list[str]:
    """A task that fails says which it is and what it left, and leads to ``explain``."""
    runner = actions.get(body.get("action", "core.noop"), NOOP)["runner_type"]
    told = [{"message": FIRST_ERROR}] if body.get("action", "").partition(".")[2] in SILENT else []
    silent = bool(told)
    told = told or [{"step": task}, {"failure": LEFT}]
    published = [
        transition.get("publish", [])
        for transition in body.get("next", [])
        if "failed()" in transition.get("when", "")
        if silent or transition.get("do") in _EXPLAINED
    ]
    whatever = [each for each in body.get("next", []) if "ed()" not in each.get("when", "")]
    matters = runner in _KEYS and name not in SILENT and "with" not in body and not whatever
    good = any(own[at : at + len(told)] == told for own in published for at in range(len(own)))
    return ["next: does not lead to explain why it failed"] if matters and not good else []


def unheard(body: Document) -> list[str]:
    """A workflow does not end with a task without an action.

    StackStorm's engine ends such a task by itself (``request_task_execution`` in
    st2common/services/workflows.py), and publishes to nobody that its workflow has ended: neither a
    workflow that called it nor a rule hears of it.
    """
    ways = [set(_followers({"next": [each]})) for each in body.get("next", [])]
    ends = not ways or any(not way - {"fail", "noop"} for way in ways)
    return ["next: ends the workflow, and has no action"] if ends and "action" not in body else []


def explained(flow: Document) -> list[str]:
    """Why a task failed is told in the workflow's message, by a task that all of them lead to."""
    body = flow["tasks"].get("explain")
    published = body["next"][0].get("publish", []) if body else []
    good = any(str(each.get("message", "")).endswith(WHY) for each in published)
    return (
        ["tasks.explain: does not tell in message why a task failed"] if body and not good else []
    )


def _unlisted(flow: Document, actions: Mapping[str, Document]) -> list[str]:
    """Tasks whose failure a silent workflow does not even name in its output."""
    (told,) = [own["message"] for own in flow["output"] if "message" in own]
    named = set(re.findall(r"\w+", told.partition("]")[0]))
    unlisted = [name for name, body in flow["tasks"].items() if silence("", name, body, actions)]
    return [f"output: message does not name {name}" for name in unlisted if name not in named]


def names_of(document: Document, field: str) -> set[str]:
    """Names in a list of words and one-entry mappings, or in a mapping."""
    items = document.get(field) or []
    return {name for item in items for name in (item if isinstance(item, dict) else [item])}


def _followers(body: Document) -> Iterator[str]:
    for transition in body.get("next", []):
        then = transition.get("do", [])
        yield from re.split(r"[,\s]+", then) if isinstance(then, str) else then


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
