# SPDX-License-Identifier: Apache-2.0
"""Requests executions, and runs each according to the runner type of its action."""

from __future__ import annotations

import getpass
import threading
from pathlib import Path
from typing import Any

from lab.runner import parameters
from lab.runner.action_process import ActionProcesses
from lab.runner.execution import Execution, Listener
from lab.runner.inbox import Inbox
from lab.runner.metadata import Pack

__all__ = ["ACTION_TRIGGER", "Engine"]

Values = dict[str, Any]

ACTION_TRIGGER = "core.st2.generic.actiontrigger"


class Engine:
    """Runs actions of one pack; `home` holds the datastore. Safe to use from several threads."""

    def __init__(
        self, pack: Pack, config: Values, home: Path, listener: Listener | None = None
    ) -> None:
        self.pack = pack
        self.config = config
        self.listener = listener or Listener()
        self.canceled = threading.Event()
        self._processes = ActionProcesses(home / "datastore.sqlite")
        self._inbox = Inbox(home)

    def run(self, name: str, given: Values) -> Execution:
        """Run an action to its end. Raises MetadataError or ParameterError before it starts."""
        execution = self.request(name, given)
        self.execute(execution)
        return execution

    def request(self, name: str, given: Values, **place: Any) -> Execution:
        """Check parameters as StackStorm does; `place` is context, parent, task, item of a task.

        Its `scope` is what the templates of a rule may use.
        """
        action = self.pack.action(name)
        context = {
            "user": getpass.getuser(),
            **place.pop("context", {}),
            "pack": action.ref.partition(".")[0],
        }
        scope = place.pop("scope", None)
        recorded = parameters.live(action, given, context, self.config, scope)
        return Execution(action, recorded, context, **place)

    def execute(self, execution: Execution) -> None:
        """Run a requested execution; whatever happens, it has a final status afterwards."""
        execution.status = "running"
        self.listener.started(execution)
        try:
            with self._processes:
                status, result = self._run(execution)
        except Exception as error:
            status, result = "failed", {"error": f"{type(error).__name__}: {error}"}
        if self.canceled.is_set() and execution.parent is None:
            status = "canceled"
        execution.finish(status, result)
        self.listener.finished(execution)
        self._inbox.post(ACTION_TRIGGER, _end_of(execution))

    def cancel(self) -> None:
        """Start no more tasks; actions that run are left to finish, as StackStorm leaves them."""
        self.canceled.set()

    def kill(self) -> None:
        """Cancel, and kill the actions that run."""
        self.cancel()
        self._processes.kill_all()

    def _run(self, execution: Execution) -> tuple[str, Any]:
        action = execution.action
        runner, own = parameters.final(action, execution.parameters, execution.context, self.config)
        if action.runner == "python-script":
            return self._processes.run(execution, runner, own, self.config)
        if action.runner == "orquesta":
            # Orquesta takes a third of a second to import, which single actions need not wait for.
            from lab.runner.workflow import Workflow

            return Workflow(self, execution, own).conduct()
        if action.runner == "announcement":
            # Nobody listens here: whoever shows the end of an execution shows what was announced.
            return "succeeded", {"output": own, **own}
        if action.runner in ("noop", "echo"):
            return "succeeded", _shell_result(own.get("message", ""))
        raise ValueError(f'runner type "{action.runner}" does not exist in the local runner')


def _end_of(execution: Execution) -> Values:
    """The payload of StackStorm's trigger for an execution that ended."""
    document = execution.document()
    names = ("status", "start_timestamp", "parameters", "result")
    return {
        "execution_id": execution.id,
        **{name: document[name] for name in names},
        "action_name": execution.action.ref,
        "action_ref": execution.action.ref,
        "runner_ref": execution.action.runner,
    }


def _shell_result(stdout: str) -> Values:
    succeeded = {"failed": False, "succeeded": True, "return_code": 0}
    return {**succeeded, "stdout": stdout, "stderr": ""} if stdout else succeeded
