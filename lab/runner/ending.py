# SPDX-License-Identifier: Apache-2.0
"""How a run ends: its exit status, what was wrong, and the commands that a person may type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from edgetune.base.documents.words import State
from lab.runner.display import errors_of, message_of
from lab.runner.execution import Execution
from lab.runner.metadata import Action, Pack
from lab.runner.story import Story

__all__ = [
    "FAILED",
    "REFUSED",
    "USAGE",
    "command",
    "exit_status",
    "help_command",
    "next_steps",
    "problem_of",
    "status_for",
]

_RUN = "edgetune run"
_REMEDIES = {
    "there is no rollout": "edgetune status --all",
    "there is no campaign": f"{_RUN} campaign_status",
    "that soaks or is held": "edgetune status",
    "is measured already": "edgetune status",
}
"""What to type after a problem that begins so, whatever was run."""

REFUSED, USAGE, FAILED = 1, 2, 3
"""Exit status: refused by edgetune, wrong usage or input, something failed
(docs/how-to/command.md)."""

_STATUS = {
    **dict.fromkeys(("usage", "input", "unconfigured"), USAGE),
    **dict.fromkeys(("refused", "fenced", "damaged"), REFUSED),
}


def exit_status(execution: Execution) -> int:
    """Of a run that no signal canceled.

    A rollout that was taken back failed, whatever word the step has that ended it.
    """
    if execution.status == "succeeded":
        return 0
    payload = execution.payload if isinstance(execution.payload, dict) else {}
    if payload.get("outcome") == State.ROLLED_BACK:
        return FAILED
    return status_for(_reason_of(execution))


def status_for(reason: str) -> int:
    """Of the word that an action or an error has for why it failed."""
    return _STATUS.get(reason, FAILED)


def problem_of(execution: Execution, story: Story | None) -> str:
    """Why it did not succeed, in one line; of a rollout that was begun, what became of it."""
    if execution.status in ("succeeded", "canceled"):
        return ""
    failed = next(_failed_leaves(execution), execution)
    told = message_of(execution if story else failed)
    return told or next(errors_of(execution), "") or f"it ended as {execution.status}"


def next_steps(
    pack: Pack, execution: Execution, given: Mapping[str, Any], story: Story | None
) -> dict[str, str]:
    """Commands by what they do, after a run."""
    succeeded = execution.status == "succeeded"
    if succeeded and not story and _is_dry(execution):
        return {"carry it out": _in_earnest(pack, execution, given)}
    steps = _steps_of(story) if story and execution.action.runner == "orquesta" else {}
    helped = steps or execution.status in ("succeeded", "canceled")
    remedy = "" if helped else _remedy(execution, story)
    return {**steps, **({"next": remedy} if remedy else {})}


def _steps_of(story: Story) -> dict[str, str]:
    id = story.head.id
    report = {"report": command("report_rollout", rollout=id)}
    back = {"roll back": command("roll_back_pop", rollout=id)}
    longer = {"look longer": command("rollout_pop", rollout=id, wait="true")}
    # Of a measurement that was canceled nothing else returns what hosts weigh.
    weights = {"return weights": command("recover_rollout", rollout=id)}
    steps = {
        State.COMPLETE: {**report, **back},
        State.ROLLED_BACK: report,
        State.HELD: {**report, **longer, **back},
        State.SOAKING: {"go on": "edgetune serve --enable advance_soaking", **back},
    }.get(State(story.head.state), {})
    return {**(weights if story.head.measuring else {}), **steps}


def command(action: str, **parameters: str) -> str:
    """What a person types to run an action here."""
    return _with_words(action, parameters)


def help_command(action: Action) -> str:
    """What a person types to see what an action takes."""
    return " ".join([_RUN, action.name, "--help"])


def _with_words(action: str, parameters: Mapping[str, Any]) -> str:
    words = [f"{name}={_word(value)}" for name, value in parameters.items()]
    return " ".join([_RUN, action, *words])


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return shlex.quote(str(value))


def _is_dry(execution: Execution) -> bool:
    """Whether it showed what it would do, and did not do it."""
    asked = execution.action.parameters.get("dry_run", {})
    return bool(execution.parameters.get("dry_run", asked.get("default")))


def _in_earnest(pack: Pack, execution: Execution, given: Mapping[str, Any]) -> str:
    """The same without the dry run; a plan holds what was said of it."""
    payload = execution.payload if isinstance(execution.payload, dict) else {}
    known = execution.action.parameters
    plan = {"plan": payload["plan"]} if payload.get("plan") and "plan" in known else {}
    held = pack.action("plan_rollout").parameters if plan else {}
    told = {*held, "dry_run"} - {"wait"}  # which is of the rollout, and of no plan
    kept = {name: value for name, value in given.items() if name not in told}
    return _with_words(execution.action.name, {**plan, **kept, "dry_run": False})


def _remedy(execution: Execution, story: Story | None) -> str:
    """What helps; nothing where the run itself has said that."""
    told = problem_of(execution, None)
    for problem, remedy in _REMEDIES.items():
        if problem in told:
            return remedy
    if execution.action.name == "doctor_pop":
        return ""
    if _STATUS.get(_reason_of(execution)) == USAGE:
        return help_command(execution.action)
    if story:
        return command("report_rollout", rollout=story.head.id)
    pop = execution.parameters.get("pop")
    return f"edgetune doctor {shlex.quote(pop)}" if pop else "edgetune status"


def _reason_of(execution: Execution) -> str:
    """The word that the action which failed first has for it."""
    failed = next(_failed_leaves(execution), None)
    payload = failed.payload if failed and isinstance(failed.payload, dict) else {}
    return str(payload.get("reason", ""))


def _failed_leaves(execution: Execution) -> Iterator[Execution]:
    """Actions that failed, in the order in which they were begun."""
    if not execution.children and execution.status not in ("succeeded", "canceled"):
        yield execution
    for child in execution.children:
        yield from _failed_leaves(child)
