# SPDX-License-Identifier: Apache-2.0
"""An HTTPS server on loopback that misbehaves as a test tells it to, and counts what arrives."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Union

from lab.bmc.certificates import Certificates

# Status, headers, body; or nothing, for what writes (or does not) by itself.
Reply = Union[tuple[int, Mapping[str, str], bytes], None]
Behaviour = Callable[["Handler"], Reply]

SESSIONS = "/redfish/v1/SessionService/Sessions"
ROOT = {"Links": {"Sessions": {"@odata.id": SESSIONS}}, "Systems": {"@odata.id": "/s"}}


def reply(status: int, data: Any = None, **headers: str) -> Behaviour:
    """Answer so; names of headers with ``_`` for ``-``."""
    body = b"" if data is None else json.dumps(data).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: (status, named, body)


def hang(handler: Handler) -> Reply:
    """Say nothing until the test ends."""
    handler.bmc.closing.wait(60)
    handler.close_connection = True
    return None


def cut(handler: Handler) -> Reply:
    """Break the connection off."""
    handler.connection.close()
    handler.close_connection = True
    return None


def drip(handler: Handler) -> Reply:
    """Begin an answer, and go on with a byte now and then."""
    end = time.monotonic() + 60
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    with contextlib.suppress(OSError):
        while time.monotonic() < end and not handler.bmc.closing.wait(0.05):
            handler.wfile.write(b" ")
    handler.close_connection = True
    return None


def _breaks_off(*parts: bytes) -> Behaviour:
    """Send so much of an answer, and end the connection."""

    def behave(handler: Handler) -> Reply:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"\r\n".join(parts))
        handler.close_connection = True
        return None

    return behave


_BEGUN = b'{"Name": "thi'
_PACKED = gzip.compress(b'{"Name": "thing"}')[:-9]
CUT_OFF = {
    "counted": _breaks_off(b"Content-Length: 17", b"", _BEGUN),
    "in chunks": _breaks_off(b"Transfer-Encoding: chunked", b"", b"11", _BEGUN),
    "after a chunk": _breaks_off(b"Transfer-Encoding: chunked", b"", b"d", _BEGUN, b""),
    "packed": _breaks_off(b"Content-Length: %d" % len(_PACKED), b"", _PACKED),
    "until the end": _breaks_off(b"Connection: close", b"", _BEGUN),
}
"""Answers that end early, by how they tell their length."""


@dataclass(frozen=True)
class Request:
    method: str
    headers: Mapping[str, str]
    body: Any


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bmc: ScriptedBmc

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.bmc.arrived.append((self.command, self.path))
        headers = dict(self.headers.items())
        self.bmc.requests.append(Request(self.command, headers, json.loads(body or b"null")))
        answered = self.bmc.behaviour(self.command, self.path)(self)
        if answered is None:
            return
        status, headers, body = answered
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PATCH = do_POST = do_DELETE = answer

    def log_message(self, format: str, *arguments: Any) -> None:
        """The test looks at ``arrived``."""


class ScriptedBmc:
    """``pages`` are what GET shows; ``script`` behaves instead, a list one after the other.

    The last behaviour of a list stays. Sessions are opened and deleted unless a script says
    otherwise; all other changes are answered 204 and do nothing.
    """

    def __init__(self, certificates: Certificates) -> None:
        self.certificates = certificates
        self.pages: dict[str, Any] = {"/redfish/v1/": ROOT}
        self.script: dict[tuple[str, str], list[Behaviour]] = {}
        self.arrived: list[tuple[str, str]] = []
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), type("Bound", (Handler,), {"bmc": self}))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificates.certificate, self.certificates.key)
        self._server.context = context
        self.address = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def on(self, method: str, path: str, *behaviours: Behaviour) -> None:
        """Behave so, one after the other."""
        self.script[method, path] = list(behaviours)

    def behaviour(self, method: str, path: str) -> Behaviour:
        listed = self.script.get((method, path))
        if listed:
            return listed.pop(0) if len(listed) > 1 else listed[0]
        if method == "GET":
            there = path in self.pages
            return reply(200, self.pages[path]) if there else reply(404)
        if path == SESSIONS:
            return reply(201, {}, X_Auth_Token="token", Location=f"{SESSIONS}/1")
        return reply(204)

    def count(self, method: str, path: str) -> int:
        return self.arrived.count((method, path))

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    context: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:
        # In the thread of the connection, and bounded: one that never speaks harms nobody.
        request.settimeout(60)
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):
            encrypted = self.context.wrap_socket(request, server_side=True)
            with encrypted:
                self.RequestHandlerClass(encrypted, client_address, self)

    def handle_error(self, request: socket.socket | Any, client_address: Any) -> None:
        """Connections that break belong to the tests."""
