"""Python actions as processes of their own, under StackStorm's contract (see wrapper.py)."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lab import STANDINS
from lab.runner import template
from lab.runner.execution import Execution

__all__ = ["COMMANDS", "ActionProcesses"]

# How actions and sensors name the command that runs an action here (base.sanitize.command).
COMMANDS = {"EDGETUNE_RUN": "edgetune run "}

Values = dict[str, Any]

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


class _Template:
    """The process that actions are forked from (template.py)."""

    def __init__(self, pack: str, environment: dict[str, str]) -> None:
        self._lock = threading.Lock()
        self._requests, own = socket.socketpair()
        with own:
            self._process = subprocess.Popen(
                [sys.executable, "-u", template.__file__, pack],
                stdin=own.fileno(),
                stdout=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    def fork(self, document: Values, descriptors: Sequence[int]) -> None:
        """Start an action; OSError where this process has ended."""
        data = json.dumps({**document, "folder": str(Path.cwd())}).encode()
        with self._lock:
            length = template.LENGTH.pack(len(data))
            socket.send_fds(self._requests, [length], descriptors)
            self._requests.sendall(data)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        """End it."""
        self._requests.close()
        try:
            self._process.wait(_DRAIN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Process:
    """An action: what it has printed, and what the template tells of it."""

    def __init__(self, stdout: IO[bytes], stderr: IO[bytes], status: IO[bytes]) -> None:
        self._read = {pipe.fileno(): b"" for pipe in (stdout, stderr, status)}
        self._status = status.fileno()
        self._is_killed = False
        self.is_lost = False

    def read(self, seconds: float) -> bool:
        """Read all that it prints, and its end; False if that is not there in time."""
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            for pipe in self._read:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, end - time.monotonic()))
                for key, _ in ready:
                    part = os.read(key.fd, 1 << 16)
                    self._read[key.fd] += part
                    if not part:
                        selector.unregister(key.fd)
                if not ready:
                    return False
                self.is_lost = self._status not in selector.get_map() and not self._told[1:]
                if self.is_lost or self._is_killed:  # it may have been before its id was known
                    self.kill()
        return True

    @property
    def _told(self) -> list[int]:
        """Its id, and its exit code, as far as they are known."""
        *whole, _ = self._read[self._status].split(b"\n")
        return [int(line) for line in whole]

    def kill(self) -> None:
        """Kill it with its descendants, now or as soon as it is there."""
        self._is_killed = True
        for pid in self._told[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def outcome(self, timed_out: bool) -> _Outcome:
        """RuntimeError where the end of it was not told."""
        stdout, stderr, _ = map(_text, self._read.values())
        if timed_out:
            return _Outcome(_TIMEOUT_EXIT, stdout, stderr, timed_out)
        if self.is_lost:
            raise RuntimeError("the process that starts actions has ended")
        return _Outcome(self._told[1], stdout, stderr, timed_out)


class ActionProcesses:
    """Starts actions and keeps hold of those running. Parameters never appear in arguments.

    A context, or several one in another, around all that belongs together.
    """

    def __init__(self, datastore: Path) -> None:
        self._datastore = datastore
        self._running: set[_Process] = set()
        self._lock = threading.Lock()
        self._killed = False
        self._entered = 0
        self._template: _Template | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._entered += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._entered -= 1
            if not self._entered:
                self._end_template()

    def run(
        self, execution: Execution, runner: Values, parameters: Values, config: Values
    ) -> tuple[str, Values]:
        """Run the action to its end or its timeout; returns status and StackStorm's envelope.

        The kernel closes our end of a pipe when this process ends, and with it the action.
        """
        request = {
            "file": str(execution.action.file),
            "pack": execution.context["pack"],
            "config": config,
            "parameters": parameters,
            "log_level": runner["log_level"],
            "path": [str(STANDINS)],
            "datastore": str(self._datastore),
        }
        told = {_SECONDS: runner["timeout"], **self._config_file(), **(runner["env"] or {})}
        with tempfile.TemporaryFile() as answer, _pipe() as (lost, _held):
            with self._started(execution, told, request, [answer, lost]) as process:
                timed_out = not process.read(runner["timeout"])
                if timed_out:
                    process.kill()
                    process.read(_DRAIN_SECONDS)
            return self._judged(process.outcome(timed_out), answer, runner["timeout"])

    def _config_file(self) -> Values:
        """What the configuration was read from, unless the environment says it."""
        file = self._datastore.with_name("edgetune.yaml")
        return {} if os.environ.get("EDGETUNE_CONFIG") else {"EDGETUNE_CONFIG": file}

    def kill_all(self) -> None:
        """Kill what runs, with its descendants, and whatever is still to be started."""
        with self._lock:
            self._killed = True
            for process in self._running:
                process.kill()

    @contextlib.contextmanager
    def _started(
        self, execution: Execution, extra: Values, request: Values, given: list[IO[bytes]]
    ) -> Iterator[_Process]:
        own = _environment(execution)
        own.update((name, str(value)) for name, value in extra.items())
        action = {"action": execution.action.ref, "environment": own, "request": request}
        with _pipe() as (stdout, out), _pipe() as (stderr, error), _pipe() as (status, told):
            process = _Process(stdout, stderr, status)
            descriptors = [end.fileno() for end in (out, error, *given, told)]
            source = self._template_for(execution, own)
            source.fork(action, descriptors)
            for end in (out, error, told):
                end.close()
            with self._lock:
                self._running.add(process)
                if self._killed:
                    process.kill()
            try:
                yield process
            finally:
                with self._lock:
                    self._running.discard(process)
                    if process.is_lost and self._template is source:
                        self._end_template()

    def _template_for(self, execution: Execution, environment: dict[str, str]) -> _Template:
        with self._lock:
            if self._template and self._template.has_ended():
                self._end_template()
            if self._template is None:
                self._template = _Template(execution.context["pack"], environment)
            return self._template

    def _end_template(self) -> None:
        if self._template:
            self._template.close()
            self._template = None

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


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    reader, writer = os.pipe()
    with open(reader, "rb") as own, open(writer, "wb") as other:
        yield own, other


def _text(output: bytes) -> str:
    """Lines end as text files' do."""
    return output.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
