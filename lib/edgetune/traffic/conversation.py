# SPDX-License-Identifier: Apache-2.0
"""One question to a socket and its answer, within one deadline and one bound on size."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

LIMIT = 16 * 2**20
"""Bytes of the largest answer: 16 MB hold some 50,000 rows of HAProxy's statistics."""


class Tls(NamedTuple):
    """Whose certificate is believed, which one of ours is shown, and the name that theirs is for.

    The files are PEM, and the second one has the key, too. "" stands for the CAs of the system, no
    certificate of ours, and the host of the address.
    """

    ca_file: str = ""
    certificate_file: str = ""
    server_name: str = ""


def ask(address: str, command: str, deadline: float, tls: Tls | None = None) -> str:
    """All that comes until the other side closes, asked at ``tcp://HOST:PORT``, at
    ``tls://HOST:PORT`` or at ``unix:///PATH``.

    ``deadline`` is in seconds of ``time.monotonic``. Raises OSError where nobody answers, not in
    time, or with more than LIMIT; and where a certificate is not believed.
    """
    # Before anybody is asked: a file that is missing is no trouble of the other side.
    context = _context(tls or Tls()) if address.startswith("tls:") else None
    with _connected(address, deadline) as plain, _secured(plain, address, context, tls) as sock:
        sock.settimeout(_left(deadline))
        sock.sendall(command.encode() + b"\n")
        return b"".join(_received(sock, deadline)).decode("utf-8", "replace")


def shown_certificate(address: str, deadline: float, tls: Tls) -> bytes:
    """In DER, the certificate that is shown at ``tls://HOST:PORT``; OSError as of `ask`."""
    with _connected(address, deadline) as plain:
        secured = _secured(plain, address, _context(tls), tls)
        assert isinstance(secured, ssl.SSLSocket)
        with secured:
            return secured.getpeercert(binary_form=True) or b""


def _context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
    except OSError as error:
        raise OSError(f"ca_file {tls.ca_file}: {error.strerror or error}") from None
    if tls.certificate_file:
        try:
            # Without a password it would ask for one on the terminal.
            context.load_cert_chain(tls.certificate_file, password="")
        except OSError as error:
            told = f"certificate_file {tls.certificate_file}: {error.strerror or error}"
            raise OSError(told) from None
    return context


def _secured(
    sock: socket.socket, address: str, context: ssl.SSLContext | None, tls: Tls | None
) -> socket.socket:
    if context is None:
        return sock
    host = address.partition("://")[2].rpartition(":")[0].strip("[]").partition("%")[0]
    name = (tls.server_name if tls else "") or host
    # An end that nobody signed may be the work of somebody between us.
    return context.wrap_socket(sock, server_hostname=name, suppress_ragged_eofs=False)


def _received(sock: socket.socket, deadline: float) -> Iterator[bytes]:
    size = 0
    while True:
        sock.settimeout(_left(deadline))
        part = sock.recv(65536)
        if not part:
            return
        size += len(part)
        if size > LIMIT:
            raise OSError(f"its answer is longer than {LIMIT // 2**20} MB")
        yield part


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("its whole answer did not come in time")
    return left


def _connected(address: str, deadline: float) -> socket.socket:
    scheme, _, place = address.partition("://")
    if scheme == "unix":
        return _connect(socket.AF_UNIX, place, deadline)
    found = _found(place)
    for family, _, _, _, there in found[:-1]:
        try:
            return _connect(family, there, deadline)
        except OSError:
            # The next address of the same name may answer.
            _left(deadline)
    return _connect(found[-1][0], found[-1][4], deadline)


def _found(place: str) -> list[Any]:
    host, _, port = place.rpartition(":")
    if not 0 < int(port) < 65536:
        # getaddrinfo would take 99999 for 34463.
        raise OSError(f"{port} is no port")
    try:
        return list(socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM))
    except UnicodeError:
        raise OSError(f"{host!r} is no name of a host") from None


def _connect(family: int, there: object, deadline: float) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(_left(deadline))
        sock.connect(there)  # type: ignore[arg-type]
        return sock
    except BaseException:
        sock.close()
        raise
