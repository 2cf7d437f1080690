# SPDX-License-Identifier: Apache-2.0
"""The monitor of one QEMU, and what it told: QMP, JSON lines over a socket.

Source: docs/interop/qmp-spec.txt of QEMU.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

ANSWER_SECONDS = 20.0


class Monitor:
    """Talks over one end of a socket pair; QEMU has the other. It may have yet to begin."""

    def __init__(self, own: socket.socket) -> None:
        self._socket = own
        self._unread = b""
        self._events: list[dict[str, Any]] = []
        self._asked = 0
        # QEMU tells no event before its client has said which protocol it speaks.
        self._send("qmp_capabilities", {})

    def execute(self, command: str, **arguments: Any) -> Any:
        """Its return value; OSError with QEMU's reason when it refuses, or when it has ended."""
        self._send(command, arguments)
        end = time.monotonic() + ANSWER_SECONDS
        while (answer := self._sort_out()) is None:
            left = end - time.monotonic()
            if left <= 0 or not self._read(left):
                raise OSError(f"QEMU did not answer {command}")
        if "error" in answer:
            raise OSError(f"QEMU refuses {command}: {answer['error']['desc']}")
        return answer["return"]

    def take_events(self) -> list[dict[str, Any]]:
        """What happened since the last call, oldest first; also when QEMU has ended since."""
        while self._read(0.0):
            pass
        self._sort_out()
        taken, self._events = self._events, []
        return taken

    def close(self) -> None:
        self._socket.close()

    def _send(self, command: str, arguments: dict[str, Any]) -> None:
        self._asked += 1
        request = {"execute": command, "arguments": arguments, "id": self._asked}
        self._socket.sendall(json.dumps(request).encode() + b"\n")

    def _sort_out(self) -> dict[str, Any] | None:
        """Put events aside; the answer to what was asked last among the lines that are whole."""
        answer = None
        while b"\n" in self._unread:
            line, _, self._unread = self._unread.partition(b"\n")
            message: dict[str, Any] = json.loads(line)
            if "event" in message:
                self._events.append(message)
            elif message.get("id") == self._asked:
                answer = message
        return answer

    def _read(self, seconds: float) -> bool:
        """Whether something came in time."""
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(65536)
        except (BlockingIOError, TimeoutError, socket.timeout):
            return False
        except ConnectionResetError:
            return False
        finally:
            self._socket.settimeout(ANSWER_SECONDS)
        self._unread += data
        return bool(data)
