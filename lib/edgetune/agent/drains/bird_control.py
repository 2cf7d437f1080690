# SPDX-License-Identifier: Apache-2.0
"""What BIRD says on its control socket, as birdc asks it.

Each line of a reply begins with a code of four digits, and "-" where more follow, or with a space
where the code of the line before holds. The last line has a space behind its code: so a reply that
was cut off is known as one (BIRD 2 and 3, nest/cli.c and doc/reply_codes).
"""

import re
import socket
import time
from typing import Dict, List, NamedTuple

from edgetune.agent.host import decode
from edgetune.agent.protocol import Failed, Refused

SECONDS = 10.0
MOST_BYTES = 4 << 20
READY, PROTOCOL, SYMBOL, DENIED, NO_MATCH = "0001", "1002", "1010", "8007", "8003"
_LAST = re.compile(rb"(?:^|\n)\d{4} [^\n]*\n\Z")


class Protocol(NamedTuple):
    """A row of ``show protocols``: ``state`` is up, start, stop, flush or down."""

    kind: str
    state: str
    established: bool


class Bird:
    """One conversation with BIRD. Failed where it does not answer, or not as BIRD does."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._end = time.monotonic() + SECONDS
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(SECONDS)
            self._socket.connect(path)
            if READY not in self._reply():
                raise Failed(f"{path}: what answers there is not BIRD")
        except OSError as error:
            self.close()
            raise Failed(f"BIRD does not answer at {path}: {error.strerror or error}") from None
        except Failed:
            self.close()
            raise

    def close(self) -> None:
        """End the conversation."""
        self._socket.close()

    def protocols(self) -> Dict[str, Protocol]:
        """All of them, by name."""
        found = {}
        for line in self.ask("show protocols").get(PROTOCOL, []):
            words = line.split()
            if len(words) < 4:
                raise Failed(f"{self._path}: BIRD tells of a protocol: {line!r}")
            found[words[0]] = Protocol(words[1], words[3], "Established" in words[4:])
        return found

    def knows(self, symbol: str) -> bool:
        """Whether its configuration has a constant of that name."""
        lines = self.ask(f"show symbols {symbol}").get(SYMBOL, [])
        return any(line.split()[:2] == [symbol, "constant"] for line in lines)

    def refuses(self) -> str:
        """Why it would obey no command, or "": it is asked to disable what no protocol is called.

        BIRD looks at the rights of the socket first.
        """
        told = self.ask('disable "edgetune asks"')
        if NO_MATCH in told:
            return ""
        return f"BIRD at {self._path} obeys nothing: {_first(told)}"

    def set(self, name: str, enabled: bool) -> None:
        """Enable or disable a protocol, and wait until that shows; Refused where it is denied."""
        told = self.ask(f"{'enable' if enabled else 'disable'} {name}")
        if DENIED in told:
            raise Refused(f"BIRD at {self._path}: {name}: {_first(told)}")
        while True:
            own = self.protocols().get(name)
            if own is None:
                raise Failed(f"BIRD at {self._path} has no protocol {name}")
            if (own.state != "down") if enabled else (own.state == "down"):
                return
            if time.monotonic() > self._end:
                raise Failed(f"BIRD at {self._path}: {name} is {own.state}: {_first(told)}")
            time.sleep(0.05)

    def ask(self, command: str) -> Dict[str, List[str]]:
        """The lines of its whole reply, by their codes."""
        try:
            self._socket.sendall(command.encode() + b"\n")
            return self._reply()
        except OSError as error:
            why = error.strerror or error
            raise Failed(f"BIRD at {self._path} does not answer {command!r}: {why}") from None

    def _reply(self) -> Dict[str, List[str]]:
        data = b""
        while not _LAST.search(data):
            left = self._end - time.monotonic()
            if left <= 0:
                raise Failed(f"BIRD at {self._path} did not answer in time")
            self._socket.settimeout(left)
            part = self._socket.recv(65536)
            if not part:
                raise Failed(f"BIRD at {self._path} ended in the middle of its answer")
            data += part
            if len(data) > MOST_BYTES:
                raise Failed(f"BIRD at {self._path} answers more than {MOST_BYTES >> 20} MiB")
        found: Dict[str, List[str]] = {}
        code = ""
        for line in decode(data).splitlines():
            begin = re.match(r"(\d{4})[- ]", line)
            code = begin.group(1) if begin else code
            found.setdefault(code, []).append(line[5:] if begin else line[1:])
        return found


def _first(told: Dict[str, List[str]]) -> str:
    lines = [line.strip() for lines in told.values() for line in lines]
    return next(filter(None, lines), "it says nothing")
