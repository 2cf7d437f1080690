# SPDX-License-Identifier: Apache-2.0
"""HTTPS for many machines in one process: the address a connection came to tells the machine."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Union

from .machine import Machine
from .service import Service

Address = tuple[str, int]
Machines = Mapping[Union[Address, str], Machine]

IDLE_SECONDS = 30.0  # also for a handshake, and for a request that drips
LOOK_SECONDS = 0.1  # how soon a thread that waits sees that it shall end
MAX_BODY = 1 << 20
BACKLOG = 512


def serve(
    machines: Machines,
    addresses: Address | Iterable[Address],
    certificate: Path,
    key: Path,
    service: Service,
) -> Server:
    """Listen and answer, in threads, until `close`. OSError if an address cannot be listened on.

    machines: by (address, port) or by address alone. addresses: where to listen; port 0 is any
    free port (`Server.addresses` tells which).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if isinstance(addresses, tuple):
        addresses = [addresses]
    return Server(machines, list(addresses), context, service)


class Server:
    """One thread accepts, and each connection has its own: a slow client harms nobody."""

    def __init__(
        self,
        machines: Machines,
        addresses: list[Address],
        context: ssl.SSLContext,
        service: Service,
    ) -> None:
        self.machines = machines
        self.service = service
        self.closing = threading.Event()
        self._context = context
        self._connections: set[socket.socket] = set()
        self._listeners: list[socket.socket] = []
        try:
            for address in addresses:
                self._listeners.append(socket.create_server(address, backlog=BACKLOG))
        except OSError:
            self._close_listeners()
            raise
        self.addresses: list[Address] = [one.getsockname()[:2] for one in self._listeners]
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more and cut what is open; waits for what is being answered."""
        self.closing.set()
        with contextlib.suppress(OSError):  # a connection that came just now has woken it
            self._wake.send(b"!")
        self._thread.join()
        self._close_listeners()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        end = time.monotonic() + IDLE_SECONDS
        while self._connections and time.monotonic() < end:
            time.sleep(LOOK_SECONDS / 10)

    def machine_at(self, address: Address) -> Machine | None:
        return self.machines.get(address) or self.machines.get(address[0])

    def linger(self, connection: socket.socket, seconds: float) -> None:
        """Say nothing for so long, or until the other side gives up."""
        end = time.monotonic() + seconds
        connection.settimeout(LOOK_SECONDS)
        while time.monotonic() < end and not self.closing.is_set():
            with contextlib.suppress(socket.timeout):
                if not connection.recv(4096):
                    return

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector, self._wake, self._woken:
            selector.register(self._woken, selectors.EVENT_READ)
            for listener in self._listeners:
                listener.setblocking(False)
                selector.register(listener, selectors.EVENT_READ)
            while not self.closing.is_set():
                for key, _ in selector.select():
                    with contextlib.suppress(OSError):
                        connection, _ = key.fileobj.accept()  # type: ignore[union-attr]
                        self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        self._connections.add(connection)
        threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError):
                self._converse(connection)
        finally:
            self._connections.discard(connection)

    def _converse(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        machine = self.machine_at(connection.getsockname()[:2])
        if machine is None:
            return
        if "deaf" in machine.faults:
            self.linger(connection, float("inf"))
            return
        connection.settimeout(IDLE_SECONDS)
        wrap = self._context.wrap_socket
        with wrap(connection, server_side=True, do_handshake_on_connect=False) as encrypted:
            self._connections.add(encrypted)
            try:
                encrypted.do_handshake()
                with machine.lock:
                    machine.connections += 1
                _Handler(encrypted, machine, self)
            finally:
                self._connections.discard(encrypted)

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS

    def __init__(self, connection: ssl.SSLSocket, machine: Machine, server: Server) -> None:
        self._machine = machine
        self._bmc = server
        super().__init__(connection, connection.getpeername(), server)  # type: ignore[arg-type]

    def _answer(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY:
            self.close_connection = True
            return
        body = self.rfile.read(int(length))
        if "deaf" in self._machine.faults:
            self._bmc.linger(self.connection, float("inf"))
            self.close_connection = True
            return
        status, headers, answer = self._bmc.service.handle(
            self._machine, self.command, self.path, dict(self.headers.items()), body
        )
        self._take_time()
        if "late" in self._machine.faults and self._is_change():
            self._bmc.linger(self.connection, self._machine.late_seconds)
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        headers["Content-Length"] = f"{len(answer)}"
        if self.close_connection:
            headers["Connection"] = "close"
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.wfile.write("\r\n".join([*lines, "", ""]).encode() + answer)

    do_GET = do_PATCH = do_POST = do_DELETE = do_PUT = _answer

    def _take_time(self) -> None:
        machine = self._machine
        with machine.turn if machine.in_turn else contextlib.nullcontext():
            self._bmc.closing.wait(machine.answer_seconds)

    def _is_change(self) -> bool:
        return self.command != "GET" and "/Sessions" not in self.path

    def log_message(self, format: str, *args: object) -> None:
        """What arrived is in the machine's own log."""
