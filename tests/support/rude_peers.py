# SPDX-License-Identifier: Apache-2.0
"""Peers on loopback that never end what they say, for a minute or until the test does.

A misbehaviour is given the socket and a `Patience`; what it sends goes on while that lasts.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Callable

from lab.bmc.certificates import make_certificates

LASTS = 60.0
"""Seconds; a conversation that is bounded ends in one."""
PAUSE = 0.05


class Patience:
    """How long a peer goes on: ``dripping`` and ``flooding`` are for loops."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self._until = time.monotonic() + LASTS

    def dripping(self, pause: float = PAUSE) -> Iterator[None]:
        while time.monotonic() < self._until and not self.ended.wait(pause):
            yield

    def flooding(self) -> Iterator[None]:
        while time.monotonic() < self._until and not self.ended.is_set():
            yield


Misbehaviour = Callable[[socket.socket, Patience], None]


def silence(sock: socket.socket, patience: Patience) -> None:
    """Neither read nor say anything."""
    for _ in patience.dripping():
        pass


def drip(begin: bytes, again: bytes, pause: float = PAUSE) -> Misbehaviour:
    """Begin an answer, and go on with a byte now and then."""

    def act(sock: socket.socket, patience: Patience) -> None:
        sock.sendall(begin)
        for _, byte in zip(patience.dripping(pause), itertools.cycle(again or b"\0")):
            sock.sendall(bytes([byte]) if again else b"")

    return act


def flood(begin: bytes, again: bytes) -> Misbehaviour:
    """The same, with as much as the other side takes."""

    def act(sock: socket.socket, patience: Patience) -> None:
        sock.sendall(begin)
        many = again * (65536 // len(again) + 1)
        for _ in patience.flooding():
            sock.sendall(many)

    return act


_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"
_GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"

HTTP: Mapping[str, Misbehaviour] = {
    "says nothing": silence,
    "drips its status": drip(b"HTTP/1.1 200 ", b"O"),
    "drips headers": drip(_OK, b"X: y\r\n"),
    "stalls after headers": drip(_OK + b"Content-Length: 99\r\n\r\n", b""),
    "drips a body": drip(_OK + b"Content-Length: 100000\r\n\r\n", b" "),
    "drips the length of a chunk": drip(_CHUNKED, b"0"),
    "drips 100 Continue": drip(b"", _GO_ON),
    "has headers without an end": flood(_OK, b"X: " + b"y" * 60_000 + b"\r\n"),
    "has a header without an end": flood(_OK + b"X: ", b"y"),
    "has a body without an end": flood(_OK + b"\r\n", b" "),
    "has chunks without an end": flood(_CHUNKED, b"4\r\n    \r\n"),
    "has an extension of a chunk without an end": flood(_CHUNKED + b"2;", b"x"),
    "has trailers without an end": flood(_CHUNKED + b"0\r\n", b"X: y\r\n"),
    "goes on with 100 Continue": flood(b"", _GO_ON),
    "is compressed without an end": flood(
        _OK + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08\0\0\0\0\0\0\3", b"\0\0\0\xff\xff"
    ),
}
"""By what a service does."""

# A record of the handshake (RFC 8446, 5.1) that has 16 kB, and a ServerHello of as many.
TLS: Mapping[str, Misbehaviour] = {
    "drips its handshake": drip(b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb\x03\x03", b"\0"),
    "has a handshake without an end": flood(b"", b"\x16\x03\x03\x00\x04\0\0\0\0"),
}
LINES: Mapping[str, Misbehaviour] = {
    "says nothing": silence,
    "drips": drip(b"", b"#"),
    "goes on": flood(b"", b"#"),
}


def secured(act: Misbehaviour, folder: Path, tickets: int = 2) -> Misbehaviour:
    """The same within TLS; ``folder`` has the certificates of `certified`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "own.pem")
    context.num_tickets = tickets

    def talk(sock: socket.socket, patience: Patience) -> None:
        with context.wrap_socket(sock, server_side=True) as wrapped:
            act(wrapped, patience)

    return talk


def certified(folder: Path) -> str:
    """The file with the authority of a certificate for 127.0.0.1, which is in ``own.pem``."""
    made = make_certificates(folder, ["127.0.0.1"])
    (folder / "own.pem").write_bytes(made.certificate.read_bytes() + made.key.read_bytes())
    return str(made.authority)


@contextlib.contextmanager
def rude(act: Misbehaviour, path: Path | None = None) -> Iterator[int]:
    """The port of a peer that treats each connection so; or it listens at a path."""
    patience, threads = Patience(), []
    listening = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
    listening.bind(str(path) if path else ("127.0.0.1", 0))
    listening.listen(16)

    def talk(sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            sock.settimeout(LASTS)
            act(sock, patience)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threads.append(threading.Thread(target=talk, args=[listening.accept()[0]]))
                threads[-1].start()

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        yield 0 if path else listening.getsockname()[1]
    finally:
        patience.ended.set()
        listening.shutdown(socket.SHUT_RDWR)
        serving.join()
        listening.close()
        for thread in threads:
            thread.join()
