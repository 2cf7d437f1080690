# SPDX-License-Identifier: Apache-2.0
"""What the process of a Python action does, which template.py starts.

A request has file, pack, config, parameters, log_level, path (folders for the end of sys.path) and
datastore (a file). A single action waits for the imports here, so there are few.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import math
import os
import select
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_HERE = Path(__file__).resolve().parent
_INVALID_STATUS_EXIT = 220


class ActionService:
    """What an action gets as `self.action_service`; the datastore is opened on first use."""

    def __init__(self, wrapper: Wrapper) -> None:
        self._action_wrapper = wrapper

    def __getattr__(self, name: str) -> Any:
        if name not in (
            "delete_value",
            "get_user_info",
            "get_value",
            "list_values",
            "set_value",
        ):
            raise AttributeError(name)
        return getattr(self._action_wrapper.datastore(), name)


class Wrapper:
    """Loads and runs one action; StackStorm's base class reads these attributes."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self._pack = request["pack"]
        self._log_level = request["log_level"]
        self._class_name = ""

    def run(self) -> Any:
        action_class = _action_class(Path(self._request["file"]))
        self._class_name = action_class.__name__
        service = ActionService(self)
        action = action_class(config=self._request["config"], action_service=service)
        return action.run(**self._request["parameters"])

    def datastore(self) -> Any:
        import logging

        module = load_module("lab.runner.datastore", _HERE / "datastore.py")
        logger = logging.getLogger("st2.actions.python." + self._class_name)
        file = Path(self._request["datastore"])
        return module.Datastore(file, self._pack, self._class_name, logger)


def main(request: dict[str, Any], answer_fd: int, runner_fd: int) -> None:
    """Write {"status": true|false|null, "result": ...} to `answer_fd`.

    `runner_fd` reads end of file once the runner has ended: this process group ends then, too.
    """
    end_with(runner_fd)
    sys.path += request["path"]
    status, result = _status_and_result(Wrapper(request).run())
    with os.fdopen(answer_fd, "w") as answer:
        answer.write(_encoded(status, result))


def end_with(descriptor: int) -> None:
    """Have the kernel kill this process group once the other end of a pipe is closed.

    A thread that reads would wait for its turn as long as a calculation keeps the interpreter.
    Only Linux sends a signal of choice; elsewhere a timeout ends what has lost its runner.
    """
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
    poll = select.poll()  # select() takes no descriptor above 1023
    poll.register(descriptor, select.POLLIN)
    if poll.poll(0):  # closed before the kernel was asked
        os.killpg(0, signal.SIGKILL)


def _status_and_result(returned: Any) -> tuple[bool | None, Any]:
    if not (isinstance(returned, tuple) and len(returned) == 2):
        return None, returned
    if not isinstance(returned[0], bool):
        sys.stderr.write(f"run() must return (True or False, data), got: {returned[0]}\n")
        sys.exit(_INVALID_STATUS_EXIT)
    return returned


def _encoded(status: bool | None, result: Any) -> str:
    try:
        plain = _plain(result)
    except TypeError:
        plain = str(result)
    return json.dumps({"status": status, "result": plain})


def _plain(value: Any) -> Any:
    """JSON by StackStorm's (orjson's) rules: NaN becomes null, a key that is no string is an error.

    Raises TypeError, after which the whole result is turned into a string, there as here.
    """
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a key is not a string")
        return {key: _plain(item) for key, item in value.items()}
    if type(value) is tuple or isinstance(value, list):
        return [_plain(item) for item in value]
    if type(value) is float:
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return value
    raise TypeError(f"{type(value).__name__} is not JSON")


def _action_class(file: Path) -> Any:
    """The alphabetically first class defined in the file that implements `run`."""
    sys.path.append(str(file.resolve().parent))
    module = load_module(file.stem, file)
    for _, member in sorted(vars(module).items()):
        if isinstance(member, type) and member.__module__ == file.stem:
            run = getattr(member, "run", None)
            if callable(run) and not getattr(run, "__isabstractmethod__", False):
                return member
    raise ValueError(f"{file} has no class with a run method")


def load_module(name: str, file: Path) -> ModuleType:
    """Load a module as StackStorm does: it is not entered into sys.modules."""
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
