# SPDX-License-Identifier: Apache-2.0
"""A web server that sets the congestion control of large responses, by a file of prefixes.

python -m lab.prefix_server check FILE           exit 1 and name the line that is wrong
python -m lab.prefix_server serve FILE ADDRESS PORT [USUAL]
                                                 answer ``GET /NUMBER`` with so many bytes; USUAL is
                                                 the congestion control where nothing else chooses

It is a reference: it shows in few lines what a web server has to do with the file of the applier
``file`` of the agent. It reads the file when it starts and at each SIGHUP.
"""

from __future__ import annotations

import re
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from edgetune.agent.vocabulary.prefixes import number_of, number_of_address

LARGE = 100_000
"""Bytes: a response that has more is worth another congestion control."""

_PART = b"x" * 65_536
_LINE = re.compile(r"(\S+) ([a-z][a-z0-9_-]{0,14});")

Table = Mapping[int, str]
"""The congestion control by the number of the prefix (``vocabulary.prefixes``)."""


def read_table(text: str) -> Table:
    """The prefixes of a file; ValueError names a line that is wrong."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number}: is not a prefix and its congestion control")
        try:
            found[number_of(match[1])] = match[2]
        except ValueError as error:
            raise ValueError(f"line {number}: {match[1]}: {error}") from None
    return found


class Server(ThreadingHTTPServer):
    """One that serves on an address; ``reload`` reads the file again."""

    daemon_threads = True

    def __init__(self, file: Path, address: str, port: int, usual: str = "") -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._file = file
        self.table = read_table(file.read_text())
        super().__init__((address, port), _Handler)
        if usual:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, usual.encode())

    def reload(self) -> None:
        """A file that makes no sense is not taken."""
        self.table = read_table(self._file.read_text())

    def handle_error(self, *_: object) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        size = int(self.path[1:]) if re.fullmatch("/[0-9]{1,12}", self.path) else 0
        if size > LARGE:
            self._choose()
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        for first in range(0, size, len(_PART)):
            self.wfile.write(_PART[: size - first])

    def _choose(self) -> None:
        """Before the first byte of the response; the congestion window starts anew."""
        own = self.server.table.get(number_of_address(self.client_address[0]))
        if own is not None:
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, own.encode())

    def log_message(self, *_: object) -> None:
        pass


def main(arguments: Sequence[str]) -> int:
    """Check a file, or serve until SIGTERM; the exit status comes back."""
    if len(arguments) == 2 and arguments[0] == "check":
        try:
            read_table(Path(arguments[1]).read_text())
        except (OSError, ValueError) as error:
            print(f"{arguments[1]}: {error}", file=sys.stderr)
            return 1
        return 0
    if len(arguments) in (4, 5) and arguments[0] == "serve" and arguments[3].isdecimal():
        server = Server(Path(arguments[1]), arguments[2], int(arguments[3]), *arguments[4:])
        signal.signal(signal.SIGHUP, lambda *_: server.reload())
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        server.serve_forever()
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
