# SPDX-License-Identifier: Apache-2.0
"""A run that a person or a closed terminal interrupts, and what is said of what it leaves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from lab.runner.display import TaskList, message_of
from lab.runner.engine import Engine
from lab.runner.execution import Execution
from lab.runner.metadata import MetadataError
from lab.runner.runs import Run, ended_runs

__all__ = ["execute", "forget_runs", "tell_left"]

STATUS = "rollout_status"
_SHOWN = 3  # rollouts of which a terminal of 24 lines shows all that is said


def execute(engine: Engine, execution: Execution, tasks: TaskList, run: Run) -> int:
    """Run to the end; the first signal cancels, the second kills running actions.

    Returns the number of the first signal, 0 without one. A terminal that is closed sends SIGHUP
    and takes nothing any more: from then on the file of the run does.
    """
    signals: list[int] = []

    def count(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            run.replace_terminal()
            tasks.leave_terminal()
        signals.append(number)

    if execution.action.runner == "orquesta":
        # Beside a StackStorm, orquesta imports plugins that hang a thread that is not the main one.
        import_module("lab.runner.workflow")
    previous = {number: signal.signal(number, count) for number in _canceling()}
    worker = threading.Thread(target=engine.execute, args=[execution], daemon=True)
    worker.start()
    handled = 0
    while worker.is_alive():
        worker.join(timeout=0.05)
        if len(signals) > handled:
            handled = len(signals)
            _cancel(engine, tasks, again=handled > 1)
    for number, handler in previous.items():
        # A terminal that is gone must not end us before all is said.
        gone = number == signal.SIGHUP and number in signals
        signal.signal(number, signal.SIG_IGN if gone else handler)
    return signals[0] if signals else 0


def _canceling() -> list[signal.Signals]:
    """Not a SIGHUP that nohup has us ignore."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if ignored else [signal.SIGHUP])]


def _cancel(engine: Engine, tasks: TaskList, again: bool) -> None:
    if again:
        tasks.note("killing the running actions")
        engine.kill()
    else:
        tasks.note("canceling: running actions are left to finish (Ctrl-C again kills them)")
        engine.cancel()


def tell_left(engine: Engine, execution: Execution, tasks: TaskList) -> str:
    """Name the rollouts that the workflows of a run have left without an owner, the hosts that
    are out of service, and the commands that get out; what was said comes back, "" for nothing.
    """
    ids = set(_workflows(execution))
    if not ids or execution.status == "succeeded" or not _tells_rollouts(engine):
        return ""
    asked = engine.run(STATUS, {"ended": sorted(ids)})
    if asked.status != "succeeded":
        text = f"What it leaves is not known: {message_of(asked)}\n`edgetune status` asks again."
    else:
        rows = asked.payload["rollouts"]
        left = [row["left"] for row in rows if row["left"] and row["owner"] in ids]
        more = [f"... and {len(left) - _SHOWN} more: edgetune status"] if left[_SHOWN:] else []
        text = "\n".join([*left[:_SHOWN], *more])
    if text:
        tasks.note(text)
    return f"{text}\n" if text else ""


def _tells_rollouts(engine: Engine) -> bool:
    try:
        return "ended" in engine.pack.action(STATUS).parameters
    except MetadataError:  # a pack that is not ours
        return False


def _workflows(execution: Execution) -> Iterator[str]:
    """Ids of the workflows among an execution and all that it started."""
    if execution.action.runner == "orquesta":
        yield execution.id
    for child in execution.children:
        yield from _workflows(child)


def forget_runs(home: Path, status: Execution) -> None:
    """Remove the files of runs that have left nothing, by what `rollout_status` said of all."""
    if status.status != "succeeded" or any(status.parameters.get(each) for each in _FILTERS):
        return
    payload: dict[str, Any] = status.payload
    owners = {row["owner"] for row in payload["rollouts"] if row["left"]}
    for path, ids in ended_runs(home).items():
        if not owners & set(ids):
            path.unlink(missing_ok=True)


_FILTERS = ("rollout", "pop", "state", "host", "orphaned", "verdict")
