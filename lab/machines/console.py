# SPDX-License-Identifier: Apache-2.0
"""Commands for a machine whatever its network and sshd do, by the agent of QEMU that runs there.

Source of the protocol: docs/interop/qemu-ga-ref of QEMU.
"""

from __future__ import annotations

import base64
import json
import random
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import unix

# QEMU's agent notes each question in the journal of the machine, which takes CPU time there.
POLL_SECONDS, POLL_SELDOM = 0.1, 2.0
ANSWER_SECONDS = 15.0
GRACE_SECONDS = 5.0
PATH = "PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/bin"


def run(
    path: Path, command: Sequence[str], stdin: bytes = b"", timeout: float = 30.0
) -> subprocess.CompletedProcess[bytes]:
    """Run a command as root on the machine whose agent is behind the socket at `path`.

    It is killed after `timeout` seconds. OSError when no agent answers: the machine is off, boots,
    or hangs.
    """
    with unix.connect(path, ANSWER_SECONDS) as connection:
        agent = _Agent(connection)
        words = ["--signal=KILL", f"{timeout}", *command]
        given = {"input-data": base64.b64encode(stdin).decode()} if stdin else {}
        started = agent.ask(
            "guest-exec",
            {"path": "timeout", "arg": words, "env": [PATH], "capture-output": True, **given},
        )
        end, pause = time.monotonic() + timeout + GRACE_SECONDS, POLL_SECONDS
        while True:
            ended = agent.ask("guest-exec-status", {"pid": started["pid"]})
            if ended["exited"]:
                break
            if time.monotonic() > end:
                raise OSError(f"{command[0]} did not end in {timeout:g} s")
            time.sleep(pause)
            pause = min(1.5 * pause, POLL_SELDOM)
    code = -ended["signal"] if "signal" in ended else ended["exitcode"]
    out, err = (base64.b64decode(ended.get(name, "")) for name in ("out-data", "err-data"))
    return subprocess.CompletedProcess(list(command), code, out, err)


class _Agent:
    """One conversation; answers to an earlier one that broke off are not taken for ours."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._unread = b""
        number = random.getrandbits(31)
        self._socket.sendall(b"\xff")
        self._send("guest-sync-delimited", {"id": number})
        while self._next() != {"return": number}:
            pass

    def ask(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self._send(command, arguments)
        answer = self._next()
        if "error" in answer:
            raise OSError(answer["error"]["desc"])
        result: dict[str, Any] = answer["return"]
        return result

    def _send(self, command: str, arguments: dict[str, Any]) -> None:
        request = {"execute": command, "arguments": arguments}
        self._socket.sendall(json.dumps(request).encode() + b"\n")

    def _next(self) -> dict[str, Any]:
        while b"\n" not in self._unread:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the machine went down")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line.rpartition(b"\xff")[2])
        return answer
