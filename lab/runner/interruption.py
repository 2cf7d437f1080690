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

from lab.runner.display import message_of
from lab.runner.engine import Engine
from lab.runner.execution import Execution
from lab.runner.metadata import MetadataError
from lab.runner.runs import Run, ended_runs
from lab.runner.screen import Screen

__all__ = ["Signals", "forget_runs", "tell_left"]

STATUS = "rollout_status"
_SHOWN = 3  # rollouts of which a terminal of 24 lines shows all that is said


class Signals:
    """Signals that cancel, counted from the start of a run until all is said of what it leaves.

    A terminal that is closed sends SIGHUP and takes nothing any more: from then on the file of the
    run does.
    """

    def __init__(self, screen: Screen, run: Run) -> None:
        self._screen = screen
        self._run = run
        self._came: list[int] = []
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        self._previous = {each: signal.signal(each, self._count) for each in _canceling()}
        return self

    def __exit__(self, *error: object) -> None:
        """After a signal the process is about to end: another one must not change its status."""
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_IGN if self._came else handler)

    @property
    def first(self) -> int:
        """Number of the first signal, 0 without one."""
        return self._came[0] if self._came else 0

    def execute(self, engine: Engine, execution: Execution) -> None:
        """Run to the end; the first signal cancels, the second kills running actions."""
        if execution.action.runner == "orquesta":
            # Beside a StackStorm, orquesta imports plugins that hang a thread that is not the main
            # one.
            import_module("lab.runner.workflow")
        for count in self._while_it_runs(engine, execution, 0):
            _cancel(engine, self._screen, again=count > 1)

    def ask(self, engine: Engine, action: str, given: dict[str, Any]) -> Execution:
        """Run an action after the end. Two signals may be about the run itself: a third kills."""
        execution = engine.request(action, given)
        for count in self._while_it_runs(engine, execution, len(self._came)):
            if count > 2:
                engine.kill()
        return execution

    def _count(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._screen.leave_terminal()
            self._run.replace_terminal()
        self._came.append(number)

    def _while_it_runs(self, engine: Engine, execution: Execution, handled: int) -> Iterator[int]:
        """How many signals have come, each time that there are more than ``handled``."""
        worker = threading.Thread(target=engine.execute, args=[execution], daemon=True)
        worker.start()
        while worker.is_alive():
            worker.join(timeout=0.05)
            if len(self._came) > handled:
                handled = len(self._came)
                yield handled


def _canceling() -> list[signal.Signals]:
    """Not a SIGHUP that nohup has us ignore."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if ignored else [signal.SIGHUP])]


def _cancel(engine: Engine, screen: Screen, again: bool) -> None:
    if again:
        screen.line("killing the running actions")
        engine.kill()
    else:
        screen.line("canceling: running actions are left to finish (Ctrl-C again kills them)")
        engine.cancel()


def tell_left(engine: Engine, execution: Execution, screen: Screen, signals: Signals) -> str:
    """Name the rollouts that the workflows of a run have left without an owner, the hosts that
    are out of service, and the commands that get out; what was said comes back, "" for nothing.
    """
    ids = set(_workflows(execution))
    if not ids or execution.status == "succeeded" or not _tells_rollouts(engine):
        return ""
    asked = signals.ask(engine, STATUS, {"ended": sorted(ids)})
    if asked.status != "succeeded":
        text = f"What it leaves is not known: {message_of(asked)}\n`edgetune status` asks again."
    else:
        rows = asked.payload["rollouts"]
        left = [
            row["orphan_notice"] for row in rows if row["orphan_notice"] and row["owner"] in ids
        ]
        more = [f"... and {len(left) - _SHOWN} more: edgetune status"] if left[_SHOWN:] else []
        text = "\n".join([*left[:_SHOWN], *more])
    if text:
        screen.whole(text)
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
    owners = {row["owner"] for row in payload["rollouts"] if row["orphan_notice"]}
    for path, ids in ended_runs(home).items():
        if not owners & set(ids):
            path.unlink(missing_ok=True)


_FILTERS = ("rollout", "pop", "state", "host", "orphaned")
