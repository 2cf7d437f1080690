# SPDX-License-Identifier: Apache-2.0
"""Services that answer HTTP requests with their names, so that it is seen who got a request."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Service:
    """``health`` is the status that its health check gets. Requests for /held end with
    ``release``."""

    def __init__(self, name: str, address: str = "127.0.0.1") -> None:
        self.name = name
        self.health: Callable[[], int] = lambda: 200
        self.release = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.startswith("/held"):
                    service.release.wait(60)
                is_check = self.path == "/health"
                body = b"" if is_check else service.name.encode()
                self.send_response(service.health() if is_check else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with suppress(OSError):
                    self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((address, 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.place = f"{address}:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def services(addresses: Mapping[str, str]) -> Iterator[dict[str, Service]]:
    """One of each name at its address, on a port of its own."""
    started = {name: Service(name, address) for name, address in addresses.items()}
    try:
        yield started
    finally:
        for own in started.values():
            own.close()


def request(path: Path, asked: str = "/", cookie: str = "") -> str:
    """Who answers one new client at a UNIX socket; the status, or "", where nobody does."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(path))
        head = f"GET {asked} HTTP/1.0\r\n" + (f"Cookie: {cookie}\r\n" if cookie else "")
        client.sendall(f"{head}\r\n".encode())
        answer = b""
        while part := client.recv(4096):
            answer += part
    _, status, *_ = answer.decode().split(" ", 2) if answer else ("", "")
    return answer.rpartition(b"\r\n\r\n")[2].decode() if status == "200" else status


def hold(path: Path, asked: str, cookie: str = "") -> None:
    """Have a request for /held under way, until its service is told to release it."""
    threading.Thread(target=request, args=(path, asked, cookie), daemon=True).start()


def who_gets(path: Path, names: Sequence[str]) -> set[str]:
    """The ``names`` that some new clients come to, of as many requests as make that sure."""
    return {request(path) for _ in range(6 * len(names))} & {*names}
