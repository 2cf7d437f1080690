# SPDX-License-Identifier: Apache-2.0
"""`/metrics` of `edgetune serve`: the state of rollouts, read anew for each scrape."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from edgetune.base.errors import EdgetuneError
from edgetune.fleet.export.families import CONTENT_TYPE
from edgetune.fleet.export.state import read_state
from edgetune.rollout.context import Context
from lab.usage import UsageError

__all__ = ["Address", "metrics_served", "read_address"]

Address = tuple[str, int]

_LOOPBACK = "127.0.0.1"
_MOST_PORT = 65_535
_PLAIN = "text/plain; charset=utf-8"
# Seconds that a client may take for its request.
_PATIENCE = 10


def read_address(text: str) -> Address:
    """`9464` is a port of the loopback, `10.0.0.5:9464` one of that address; else ValueError."""
    host, _, port = text.rpartition(":")
    if ":" in host or not port.isdecimal() or not 0 < int(port) <= _MOST_PORT:
        raise ValueError(f"PORT or ADDRESS:PORT, not {text}")
    return host or _LOOPBACK, int(port)


@contextlib.contextmanager
def metrics_served(config: dict[str, Any], address: Address | None) -> Iterator[None]:
    """Answer scrapes at the address while the body runs, or nothing without one.

    UsageError where the address is not free.
    """
    if address is None:
        yield
        return
    with _listening(address, _handler(config)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    def server_bind(self) -> None:
        """Without asking DNS for the name of the address, which may take long."""
        socketserver.TCPServer.server_bind(self)


def _listening(address: Address, handler: type[BaseHTTPRequestHandler]) -> _Server:
    try:
        return _Server(address, handler)
    except OSError as error:
        text = f"--metrics {address[0]}:{address[1]}: {error.strerror}"
        raise UsageError(text, "edgetune serve --help") from error


def _handler(config: dict[str, Any]) -> type[BaseHTTPRequestHandler]:
    # Scrapes of several Prometheus servers take turns: each reads all records.
    turn = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE

        def do_GET(self) -> None:
            with turn:
                status, kind, text = _answer(config, self.path)
            body = text.encode("utf-8")
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing: what is served is scraped every few seconds."""

    return Handler


def _answer(config: dict[str, Any], path: str) -> tuple[int, str, str]:
    """Status, type and text; Prometheus takes a status that is not 200 for a failed scrape."""
    if path.partition("?")[0] != "/metrics":
        return 404, _PLAIN, "the metrics are at /metrics\n"
    try:
        return 200, CONTENT_TYPE, read_state(Context(config)).text()
    except EdgetuneError as error:
        return 503, _PLAIN, f"{error}\n"
