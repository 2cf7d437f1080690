# SPDX-License-Identifier: Apache-2.0
"""TLS over a connection. Importing this loads OpenSSL, which most actions do not need."""

from __future__ import annotations

import ssl
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Callable, TypeVar

from edgetune.net.connection import PART, Connection, CutError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Value = TypeVar("Value")


class TlsConnection(Connection):
    """TLS over a connection, handshake included; an end without a signature is a CutError.

    OpenSSL gets bytes handed, not the socket: what it reads of that by itself, as one ticket of a
    session after another, has neither deadline nor bound.
    """

    def __init__(self, below: Connection, context: ssl.SSLContext, name: str) -> None:
        self._below = below
        self._read, self._written = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._read, self._written, server_hostname=name)
        self._do(self._tls.do_handshake)

    def __enter__(self) -> TlsConnection:
        return self

    def grant(self, deadline: float, most: float) -> None:
        """As its parent does; the bytes are those of TLS."""
        self._below.grant(deadline, most)

    def recv(self, size: int) -> bytes:
        return self._do(partial(self._tls.read, size))

    def sendall(self, data: ReadableBuffer) -> None:
        view = memoryview(data)
        while view:
            part = view[:PART]
            view = view[self._do(partial(self._tls.write, part)) :]

    def certificate(self) -> bytes:
        """The certificate of the peer, in DER."""
        return self._tls.getpeercert(binary_form=True) or b""

    def close(self) -> None:
        """As its parent does, at once: the peer may not wait for our word."""
        self._below.close()

    def fileno(self) -> int:
        return self._below.fileno()

    def is_quiet(self) -> bool:
        """As its parent does; tickets of the session are nothing that was said."""
        while not self._below.is_quiet():
            try:
                self._take()
                self._tls.read(1)
            except ssl.SSLWantReadError:
                continue
            except OSError:
                pass
            return False
        return True

    def _do(self, act: Callable[[], Value]) -> Value:
        while True:
            try:
                value = act()
            except ssl.SSLWantReadError:
                self._flush()
                self._take()
            except ssl.SSLEOFError as error:
                raise CutError(str(error)) from error
            except ssl.SSLError:
                # The peer hears why.
                with suppress(OSError):
                    self._flush()
                raise
            else:
                self._flush()
                return value

    def _take(self) -> None:
        part = self._below.recv(PART)
        if part:
            self._read.write(part)
        else:
            self._read.write_eof()

    def _flush(self) -> None:
        if self._written.pending:
            self._below.sendall(self._written.read())


def secured(plain: Connection, context: ssl.SSLContext, name: str) -> TlsConnection:
    """TLS over it, for a peer of that name; closed where that does not come about."""
    try:
        return TlsConnection(plain, context, name.partition("%")[0])
    except BaseException:
        plain.close()
        raise
