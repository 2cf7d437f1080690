# SPDX-License-Identifier: Apache-2.0
"""Connections of which every wait ends at one deadline, and that receive no more than they may.

The timeout of a socket starts anew with every byte: a peer that sends one now and then would never
end. So it is set to what is left before each single wait: for a name, a connection, TLS and bytes.
"""

from __future__ import annotations

import io
import math
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from edgetune.base import clock

if TYPE_CHECKING:
    import ssl

    from _typeshed import ReadableBuffer, WriteableBuffer

    from edgetune.base.secret_files import HttpLogin

PART = 1 << 16
"""Bytes that are read at once."""


class LateError(socket.timeout):
    """The deadline came first."""

    def __init__(self, message: str = "its whole answer did not come in time") -> None:
        super().__init__(message)


class TooLongError(OSError):
    """More bytes came than any answer has."""


class CutError(OSError):
    """The connection ended, and TLS did not sign that end."""


class Connection:
    """A connection until ``deadline`` (of ``clock.monotonic``).

    All methods raise OSError: LateError at the deadline, TooLongError beyond the bytes of `grant`.
    """

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self.grant(deadline, math.inf)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def grant(self, deadline: float, most: float) -> None:
        """Let it go on until another deadline, and receive so many bytes from now on."""
        self._deadline, self._most, self._room = deadline, most, most

    def recv(self, size: int) -> bytes:
        """As a socket does: b"" at the end."""
        with self._armed():
            part = self._sock.recv(size)
        self._room -= len(part)
        if self._room < 0:
            raise TooLongError(f"its answer is longer than {self._most / 2**20:g} MB")
        return part

    def sendall(self, data: ReadableBuffer) -> None:
        with self._armed():
            self._sock.sendall(data)

    def close(self) -> None:
        self._sock.close()

    def fileno(self) -> int:
        return self._sock.fileno()

    def is_quiet(self) -> bool:
        """Whether the peer has neither ended the connection nor said what nobody asked for."""
        try:
            self._sock.settimeout(0)
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    @contextmanager
    def _armed(self) -> Iterator[None]:
        self._sock.settimeout(left(self._deadline))
        try:
            yield
        except socket.timeout:
            raise LateError from None


class Tls(NamedTuple):
    """Whose certificate is believed, which one of ours is shown, and the name that theirs is for.

    The files are PEM; without ``key_file`` the second one has the key, too. "" stands for the CAs
    of the system, no certificate of ours, and the host of the address.
    """

    ca_file: str = ""
    certificate_file: str = ""
    server_name: str = ""
    key_file: str = ""

    @classmethod
    def of(cls, login: HttpLogin) -> Tls:
        """As one logs in to a service."""
        return cls(login.ca_file, login.certificate_file, key_file=login.key_file)

    def context(self) -> ssl.SSLContext:
        """What says so to OpenSSL; OSError names the file that cannot be used."""
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except OSError as error:
            raise OSError(f"ca_file {self.ca_file}: {error.strerror or error}") from None
        if hasattr(ssl, "OP_IGNORE_UNEXPECTED_EOF"):  # from Python 3.10 on
            context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        if self.certificate_file:
            try:
                # Without a password it would ask for one on the terminal.
                context.load_cert_chain(self.certificate_file, self.key_file or None, password="")
            except OSError as error:
                problem = f"certificate_file {self.certificate_file}: {error.strerror or error}"
                raise OSError(problem) from None
        return context


def left(deadline: float) -> float:
    """Seconds until then; LateError where that is over."""
    seconds = deadline - clock.monotonic()
    if seconds <= 0:
        raise LateError
    return seconds


def reach(host: str, port: int, deadline: float) -> socket.socket:
    """A socket to the first address of a name that answers; each has its share of the time.

    OSError where none does, of the last one.
    """
    addresses = _addresses(host, port, deadline)
    for number, (family, kind, protocol, _, there) in enumerate(addresses, 1):
        share = left(deadline) / (len(addresses) + 1 - number)
        try:
            sock = _connected(socket.socket(family, kind, protocol), there, share)
            # Without this a conversation waits for delayed acknowledgements of 40 ms.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError:
            if number == len(addresses):
                raise
    raise OSError(f"{host} has no address")


def reach_path(path: str, deadline: float) -> socket.socket:
    """A socket to what listens at a path; OSError where nothing does."""
    return _connected(socket.socket(socket.AF_UNIX), path, left(deadline))


class Received(io.RawIOBase):
    """A file of what a peer sends.

    An end that TLS did not sign is an end there, as BMCs make it: the answer itself has to say
    whether it is whole.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        try:
            part = self._connection.recv(len(view))
        except CutError:
            return 0
        view[: len(part)] = part
        return len(part)


def _addresses(host: str, port: int, deadline: float) -> Sequence[Any]:
    if not 0 < port < 65536:
        # getaddrinfo would take 99999 for 34463.
        raise OSError(f"{port} is no port")
    with suppress(socket.gaierror, UnicodeError):
        numeric = socket.AI_NUMERICHOST
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric)
    answer: list[Any] = []

    def look_up() -> None:
        try:
            answer.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except UnicodeError:
            answer.append(OSError(f"{host!r} is no name of a host"))
        except OSError as error:
            answer.append(error)

    # A resolver takes the time that it wants.
    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(left(deadline))
    if not answer:
        raise LateError(f"{host} was not looked up in time")
    if isinstance(answer[0], OSError):
        raise answer[0]
    return list(answer[0])


def _connected(sock: socket.socket, there: Any, seconds: float) -> socket.socket:
    try:
        sock.settimeout(seconds)
        sock.connect(there)
    except socket.timeout:
        sock.close()
        raise LateError("no connection came about in time") from None
    except BaseException:
        sock.close()
        raise
    return sock
