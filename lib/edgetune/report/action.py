# SPDX-License-Identifier: Apache-2.0
"""Between StackStorm's actions and the library: errors become results, texts become safe."""

from __future__ import annotations

import faulthandler
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import is_dataclass
from pathlib import Path
from typing import Callable

from edgetune.base import clock
from edgetune.base.errors import AWAY, EdgetuneError, InputError, StoreError, UnconfiguredError
from edgetune.base.fields import Fields
from edgetune.base.files import load_yaml
from edgetune.base.people import signed
from edgetune.base.sanitize import one_line, printable, shortened
from edgetune.rollout.context import Context
from edgetune.rollout.order import AT_ONCE
from edgetune.rollout.record.step_times import StepTimes, counted
from edgetune.rollout.store.heartbeat import heartbeat_of

Result = tuple[bool, dict[str, object]]
Step = Callable[..., Mapping[str, object]]

ACTIONS = Path(__file__).resolve().parents[3] / "actions"
SECONDS = "EDGETUNE_SECONDS"
# Seconds for the engine to end the action first, which then knows that it was the timeout.
GRACE = 30.0
MOST_ERROR = 2_000
"""Characters of an error, which may name every host of a batch: workflows hand it on."""
_LONGEST = 600.0
_EMPTY: dict[str, Callable[[], object]] = {
    **{"array": list, "object": dict, "string": str},
    **{"integer": int, "number": int, "boolean": bool},
}


def run_step(
    step: Step,
    config: Mapping[str, object],
    periodic: bool | None = False,
    then: Sequence[Step] = (),
    diagnoses: bool = False,
    **parameters: object,
) -> Result:
    """Run a step of the library for an action.

    ``(True, result)``, or ``(False, {"error": one line, "reason": word, ...})``: a step that did
    part of its work answers with ``"failed": [hosts]`` and is a failure, too. Parameters that are
    None (StackStorm's word for "not given") take the step's default; texts are one line.
    ``periodic`` says that a timer calls: before the pack is configured that is no failure.
    ``then`` are steps that may follow in the same task, see ``rollout.order.AT_ONCE``. A step that
    ``diagnoses`` begins with a wrong configuration, too.
    ``requested_by`` is signed by the ``caller`` whom StackStorm knows, see ``people.signed``.
    """
    notes: Sequence[str] = ()
    try:
        given = {name: _given(value) for name, value in parameters.items() if value is not None}
        _refuse_empty(step, given)
        context = Context(config or {})
        notes = context.notes
        if not diagnoses:
            given = signing(step, given, context.config.system_user)
        with own_clock(step.__name__), _signs_of_life(context), counted(context, given) as times:
            result = _steps(context, (step, *then), given, times)
    except UnconfiguredError as error:
        told = safe_text(str(error))
        idle = {**_nothing_done(step.__name__), "message": told}
        return (True, idle) if periodic else (False, {"error": told, "reason": error.reason})
    except StoreError as error:
        return _failed(f"{AWAY}: {error}", error.reason, notes)
    except EdgetuneError as error:
        return _failed(str(error), error.reason, notes)
    answer = _noted({name: _told(name, own) for name, own in result.items()}, notes)
    # Print it: ``st2 execution tail`` shows what the tasks of a workflow print, as they end.
    line = str(answer.get("error") or answer.get("message", ""))
    # An action runner may have given its actions a stream for ASCII alone.
    print(line.encode("ascii", "backslashreplace").decode(), flush=True)
    return not result.get("failed"), answer


def _failed(error: str, reason: str, notes: Sequence[str]) -> Result:
    return False, {"error": safe_text(_error("; ".join([error, *notes]))), "reason": reason}


def _noted(answer: dict[str, object], notes: Sequence[str]) -> dict[str, object]:
    """An answer whose message and text say what every answer is to say."""
    said = [safe_text(one_line(note)) for note in notes]
    if "message" in answer:
        answer["message"] = "; ".join(filter(None, [str(answer["message"]), *said]))
    if "text" in answer:
        answer["text"] = "\n".join([*(f"NOTE: {note}" for note in said), str(answer["text"])])
    return answer


def _refuse_empty(step: Step, given: Mapping[str, object]) -> None:
    """InputError for an empty text where none means another thing: such as all PoPs, or a plan
    that nobody saw. A program whose variable is not set gives one."""
    for name, value in given.items():
        if not str(value).strip() and step.__annotations__.get(name) == "str | None":
            raise InputError("parameter", name, "is empty: leave it out, or say which")


def signing(step: Step, given: Mapping[str, object], system_user: str) -> dict[str, object]:
    """What a step is given, with ``requested_by`` as the ``caller`` signs it."""
    if "caller" in step.__annotations__:
        return {**given}
    own = {name: value for name, value in given.items() if name != "caller"}
    if own.get("requested_by"):
        caller = str(given.get("caller", ""))
        own["requested_by"] = signed(str(own["requested_by"]), caller, system_user)
    return own


def _steps(
    context: Context, steps: Sequence[Step], given: Mapping[str, object], times: StepTimes
) -> Mapping[str, object]:
    """Take a step, and each that the result before it names as ``next`` while nothing failed.

    The fields are those of the first step, with what the last one told of them. ``error`` is what
    each told, also of a host that is quarantined while the others go on.
    """
    began = clock.monotonic()
    result = times.take(steps[0], context, given)
    messages = [str(result.get("message", ""))]
    following = {step.__name__: step for step in steps[1:]}
    while following and not result["failed"] and clock.monotonic() - began <= AT_ONCE:
        step = following.pop(str(result["next"]), None)
        if step is None:
            break
        told = times.take(step, context, given)
        messages.append(str(told["message"]))
        kept = {name: told[name] for name in result if name in told}
        failed = told.get("error")
        errors = [result.get("error"), failed and f"{step.__name__}: {failed}"]
        told_all = {"error": "; ".join(str(error) for error in errors if error)}
        result = {**result, **kept, **told_all, "message": "; ".join(messages)}
    return result


@contextmanager
def own_clock(action: str) -> Iterator[None]:
    """End this process ``GRACE`` s after the timeout of the action, wherever it hangs.

    The engine ends an action that takes too long, but not once the engine itself has died. The
    local runner tells the timeout in the environment; StackStorm tells none, and the one of the
    action's metadata holds. What each thread did is written to standard error.
    """
    # A thread of C, which needs no turn of the interpreter.
    faulthandler.dump_traceback_later(_timeout_of(action) + GRACE, exit=True, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _signs_of_life(context: Context) -> AbstractContextManager[None]:
    """For StackStorm, which does not notice when an action dies with its action runner."""
    execution = os.environ.get("ST2_ACTION_EXECUTION_ID", "")
    if not execution or not os.environ.get("ST2_ACTION_API_URL"):
        return nullcontext()
    return heartbeat_of(execution, lambda: context.heartbeats)


def _timeout_of(action: str) -> float:
    """Seconds."""
    given = os.environ.get(SECONDS, "")
    if re.fullmatch(r"[0-9]{1,7}", given):
        return float(given)
    metadata = ACTIONS / f"{action}.yaml"
    if not metadata.is_file():
        return _LONGEST
    timeout = Fields(load_yaml(metadata), str(metadata)).inside("parameters").inside("timeout")
    return timeout.number("default")


def _nothing_done(action: str) -> dict[str, object]:
    """What the action's output schema names, and nothing in it."""
    metadata = ACTIONS / f"{action}.yaml"
    output = Fields(load_yaml(metadata), str(metadata)).inside("output_schema")
    properties = output.inside("properties").named()
    return {name: _EMPTY[own.text("type")]() for name, own in properties}


def _told(name: str, value: object) -> object:
    """A field of a result: a message is one line, and an error is no longer than ``MOST_ERROR``."""
    if name == "message":
        value = one_line(str(value))
    return safe(_error(str(value)) if name == "error" else value)


def _error(text: str) -> str:
    return shortened(text, MOST_ERROR)


def _given(value: object) -> object:
    return one_line(value) if isinstance(value, str) else value


def safe(value: object) -> object:
    """The same value as JSON has it, with every text made harmless for a workflow.

    Of a document that is its text (see ``report.answers``).
    """
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, Mapping):
        return {safe_text(str(key)): safe(below) for key, below in value.items()}
    if isinstance(value, (list, tuple)):
        return [safe(below) for below in value]
    if is_dataclass(value):
        from edgetune.report.answers import text_of

        return safe_text(text_of(value))
    return value


def safe_text(text: str) -> str:
    """Fit for a workflow and a terminal.

    StackStorm renders every input of a task as Jinja, also what a device once said, and Orquesta
    evaluates what an expression led to once more. hubot cuts an answer in two at ``{~}``.
    """
    return re.sub(r"\{(?=[{%#~])|<(?=%)", r"\g<0> ", printable(text))
