# SPDX-License-Identifier: Apache-2.0
"""The process that actions are forked from: `python -u template.py PACK`, a socket as stdin.

To start Python and to import what a step needs takes longer than most steps. A fork has both, and
a session, arguments, environment, folder and streams of its own. Where an import would find another
file by now, or the interpreter another environment, it starts Python anew.

A request is the length of a JSON document, with descriptors as in DESCRIPTORS, and then the
document: action, environment, folder, and request (see wrapper.py). `status` is told "PID\\n", and
"EXIT CODE\\n" in the end.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

DESCRIPTORS = ("stdout", "stderr", "answer", "runner", "status")
LENGTH = struct.Struct("!I")
# What most actions of edgetune import; another pack does without.
_HEAVY = ("edgetune.report.action", "edgetune.rollout.steps")
# No interpreter reads these, and no module does while it is imported.
_OF_AN_ACTION = ("ST2_", "EDGETUNE_")


def main() -> None:
    """Be the template until it is an action, or be one that starts anew: with ANSWER and RUNNER."""
    wrapper = import_module("wrapper")
    # Like StackStorm's wrapper: the modules beside this one are none of the action's business.
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [folder for folder in sys.path if folder != here]
    del sys.modules["wrapper"]
    if sys.argv[2:]:
        request, descriptors = json.load(sys.stdin), [int(word) for word in sys.argv[2:]]
        del sys.argv[2:]
    else:
        request, descriptors = Template().fork_actions()
    wrapper.main(request, *descriptors)


class Template:
    """Forks an action for each request."""

    def __init__(self) -> None:
        self._requests = socket.socket(fileno=os.dup(0))
        self._environment = dict(os.environ)
        self._statuses: dict[int, int] = {}
        self._imported: dict[str, int] = {}
        self._has_forked = False

    def fork_actions(self) -> tuple[dict[str, Any], list[int]]:
        """Until the runner has ended. Returns in an action: its request, `answer` and `runner`."""
        ended, alarm = socket.socketpair()
        alarm.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(alarm.fileno())
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(self._requests, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if ended.fileno() in ready:
                ended.recv(4096)
                self._tell_ends()
            if self._requests.fileno() in ready:
                document, descriptors = self._receive()
                if self._has_forked and not self._imported:
                    self._import_ahead()
                pid = os.fork()
                if not pid:
                    for own in (ended, alarm, self._requests):
                        own.close()
                    return document["request"], self._begin(document, *descriptors)
                self._has_forked = True
                *given, self._statuses[pid] = descriptors
                for descriptor in given:
                    os.close(descriptor)

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        length, descriptors, _, _ = socket.recv_fds(self._requests, LENGTH.size, len(DESCRIPTORS))
        if not length:
            sys.exit()
        (left,), text = LENGTH.unpack(length), b""
        while part := self._requests.recv(left - len(text)):
            text += part
        return json.loads(text), descriptors

    def _tell_ends(self) -> None:
        for pid, status in list(self._statuses.items()):
            ended, code = os.waitpid(pid, os.WNOHANG)
            if ended:
                with suppress(OSError):  # nobody reads it any more
                    os.write(status, b"%d\n" % os.waitstatus_to_exitcode(code))
                os.close(self._statuses.pop(pid))

    def _import_ahead(self) -> None:
        """Not for the first action: that is often the only one, and imports what it needs."""
        for name in _HEAVY:
            with suppress(ImportError):
                package = import_module(name)
                for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
                    import_module(f"{name}.{module.name}")
        files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        self._imported = {file: _modified(file) for file in files if file}
        gc.collect()
        gc.freeze()

    def _begin(self, document: dict[str, Any], *descriptors: int) -> list[int]:
        """Be an action; its `answer` and `runner` come back."""
        *streams, answer, runner, status = descriptors
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.write(status, b"%d\n" % os.getpid())
        for descriptor in (status, *self._statuses.values()):
            os.close(descriptor)
        streams.insert(0, os.open(os.devnull, os.O_RDONLY))
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(document["folder"])
        action, environment = document["action"], document["environment"]
        if self._would_differ(environment):
            with tempfile.TemporaryFile("w+") as file:
                json.dump(document["request"], file)
                file.seek(0)
                os.dup2(file.fileno(), 0)
            words = [sys.executable, "-u", __file__, action, str(answer), str(runner)]
            os.execve(sys.executable, words, environment)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv[1:] = [action]
        return [answer, runner]

    def _would_differ(self, environment: dict[str, str]) -> bool:
        """Whether an action that starts Python now would be another one than a fork."""
        differing = {name for name, _ in environment.items() ^ self._environment.items()}
        return not all(name.startswith(_OF_AN_ACTION) for name in differing) or any(
            _modified(file) != at for file, at in self._imported.items()
        )


def _modified(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns  # noqa: PTH116 - of hundreds, for each action
    except FileNotFoundError:
        return 0


if __name__ == "__main__":
    main()
