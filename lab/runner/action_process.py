# SPDX-License-Identifier: Apache-2.0
"""Python actions as processes of their own, under StackStorm's contract (see wrapper.py)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lab import STANDINS
from lab.runner.execution import Execution

__all__ = ["COMMANDS", "ActionProcesses"]

# How actions and sensors name the command that runs an action here (base.sanitize.command).
COMMANDS = {"EDGETUNE_RUN": "edgetune run "}

Values = dict[str, Any]

_WRAPPER = Path(__file__).with_name("wrapper.py")
_INVALID_STATUS_EXIT = 220
_TIMEOUT_EXIT = -9
_SECONDS = "EDGETUNE_SECONDS"  # of report.action: an action's own clock
# After a kill only a descendant that left the process group can still hold the pipes.
_DRAIN_SECONDS = 5


@dataclass
class _Outcome:
    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool


class ActionProcesses:
    """Starts actions and keeps hold of those running. Parameters never appear in arguments."""

    def __init__(self, datastore: Path) -> None:
        self._datastore = datastore
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._killed = False

    def run(
        self, execution: Execution, runner: Values, parameters: Values, config: Values
    ) -> tuple[str, Values]:
        """Run the action to its end or its timeout; returns status and StackStorm's envelope.

        The kernel closes our end of a pipe when this process ends, and with it the action.
        """
        lost, held = os.pipe()
        with tempfile.TemporaryFile() as answer, open(lost, "rb"), open(held, "wb"):
            request = {
                "file": str(execution.action.file),
                "pack": execution.context["pack"],
                "config": config,
                "parameters": parameters,
                "log_level": runner["log_level"],
                "path": [str(STANDINS)],
                "datastore": str(self._datastore),
                "result_fd": answer.fileno(),
                "runner_fd": lost,
            }
            told = {_SECONDS: runner["timeout"], **self._config_file(), **(runner["env"] or {})}
            process = self._start(execution, told, [answer.fileno(), lost])
            outcome = self._wait(process, json.dumps(request), runner["timeout"])
            return self._judged(outcome, answer, runner["timeout"])

    def _config_file(self) -> Values:
        """What the configuration was read from, unless the environment says it."""
        file = self._datastore.with_name("edgetune.yaml")
        return {} if os.environ.get("EDGETUNE_CONFIG") else {"EDGETUNE_CONFIG": file}

    def kill_all(self) -> None:
        """Kill what runs, with its descendants, and whatever is still to be started."""
        with self._lock:
            self._killed = True
            for process in self._running:
                _kill_group(process)

    def _start(
        self, execution: Execution, extra: Values, descriptors: list[int]
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-u", str(_WRAPPER), execution.action.ref],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**_environment(execution), **{name: str(value) for name, value in extra.items()}},
            pass_fds=descriptors,
            start_new_session=True,
        )
        with self._lock:
            self._running.add(process)
            if self._killed:
                _kill_group(process)
        return process

    def _wait(self, process: subprocess.Popen[str], request: str, timeout: float) -> _Outcome:
        timed_out = False
        try:
            stdout, stderr = process.communicate(request, timeout=timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
            _kill_group(process)
            stdout, stderr = _drained(process)
        finally:
            with self._lock:
                self._running.discard(process)
        exit_code = _TIMEOUT_EXIT if timed_out else process.returncode
        return _Outcome(exit_code, stdout, stderr, timed_out)

    def _judged(self, outcome: _Outcome, answer: IO[bytes], timeout: float) -> tuple[str, Values]:
        answer.seek(0)
        written = answer.read()
        returned: Values = {"status": None, "result": "None"}
        if written and not outcome.timed_out:
            returned = json.loads(written)
        envelope = {
            "result": returned["result"],
            "exit_code": outcome.exit_code,
            "stdout": outcome.stdout,
            "stderr": outcome.stderr,
        }
        if outcome.timed_out:
            error = f"Action failed to complete in {timeout} seconds"
            return "timeout", {**envelope, "error": error}
        if outcome.exit_code == _INVALID_STATUS_EXIT:
            return "failed", {"error": outcome.stderr}
        succeeded = outcome.exit_code == 0 and returned["status"] is not False
        if self._killed and not succeeded:
            return "canceled", envelope
        return "succeeded" if succeeded else "failed", envelope


def _environment(execution: Execution) -> dict[str, str]:
    library = str(execution.action.pack_root / "actions" / "lib")
    inherited = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": f"{library}{os.pathsep}{inherited}" if inherited else library,
        "ST2_ACTION_PACK_NAME": execution.context["pack"],
        "ST2_ACTION_EXECUTION_ID": execution.id,
        **COMMANDS,
    }


def _drained(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=_DRAIN_SECONDS)
    except subprocess.TimeoutExpired:
        return "", ""


def _kill_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
