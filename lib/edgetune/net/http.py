# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 with one service (RFC 9112), over one connection that is kept between questions.

A question is sent once, and never to another place: tokens are for one service. Neither a proxy
nor a ``.netrc`` of the environment is meant for it.
"""

from __future__ import annotations

import io
import math
import ssl
import threading
import time
import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, NamedTuple
from urllib.parse import urlencode, urlsplit

from edgetune.errors import EdgetuneError
from edgetune.net.connection import PART, Connection, Tls, reach, reader
from edgetune.sanitize import shortened

if TYPE_CHECKING:
    import http.client

CONNECT = 5.0
"""Seconds to connect, TLS included."""
LIMIT = 16 << 20
"""Bytes of the longest body, unless a service may say more."""

_MOST_TOLD = 300
# Shorter ones would stand in every other word.
_SHORTEST_SECRET = 4
# Of what is not the body: headers, answers before the answer (1xx), the frames of chunks and of
# TLS. http.client bounds a line of them, and neither all of them nor their time.
_BESIDE = 1 << 20


class NetError(EdgetuneError):
    """No whole answer came; the text says why, and does not say of whom."""


class UnreachedError(NetError):
    """Nobody was reached, so nothing was sent. ``__cause__`` is what went wrong below."""


class GarbledError(NetError):
    """The answer came, and cannot be read."""


class LongAnswerError(GarbledError):
    """The answer has more bytes than it may."""


class Answer(NamedTuple):
    """A whole answer of any status; names of headers are in small letters."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


class Service:
    """One service at a URL; ``headers`` go with each question, no error shows ``secrets``.

    ``context`` makes whom TLS believes, when it is needed.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] = {},
        secrets: Iterable[str] = (),
        context: Callable[[], ssl.SSLContext] = Tls().context,
        limit: int = LIMIT,
        patience: float = CONNECT,
    ) -> None:
        self._place, self._context = urlsplit(url), context
        self._secrets = [secret for secret in secrets if len(secret) >= _SHORTEST_SECRET]
        self._headers = {"Accept-Encoding": "gzip", **headers}
        self._limit, self._patience = limit, patience
        self._most = 2 * limit + _BESIDE
        self._connection: Connection | None = None
        self._asking = threading.Lock()

    def __enter__(self) -> Service:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave it; the next question connects anew."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def connect(self, deadline: float = math.inf) -> None:
        """Connect, unless that is done; UnreachedError where that fails.

        It takes ``patience`` seconds at most, also without a deadline.
        """
        if self._connection is not None:
            self._connection.grant(deadline, self._most)
            if self._connection.is_quiet():
                return
        self.close()
        try:
            context = self._context() if self._place.scheme == "https" else None
        except OSError as error:
            raise UnreachedError(str(error)) from error
        try:
            self._connection = self._connected(context, deadline)
            self._connection.grant(deadline, self._most)
        except (OSError, ValueError) as error:
            raise UnreachedError(f"does not answer: {self._told(error)}") from error

    def ask(
        self,
        method: str,
        path: str,
        deadline: float,
        body: bytes | None = None,
        headers: Mapping[str, str] = {},
    ) -> Answer:
        """The answer to a question about a path below the URL, before ``deadline``.

        It is of ``time.monotonic`` and holds for everything. UnreachedError, LongAnswerError, or
        another NetError: then the question may have arrived.
        """
        # An action may leave a thread behind that writes what nobody waits for.
        if not self._asking.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise UnreachedError("does not answer: another question was not over in time")
        try:
            self.connect(deadline)
            return self._asked(method, path, body, {**self._headers, **headers})
        except EdgetuneError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise NetError(f"does not answer: {self._told(error)}") from error
        finally:
            self._asking.release()

    def shown(self, text: str, most: int = _MOST_TOLD) -> str:
        """A text of the service in one short line, without secrets that it may repeat."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return shortened(text.strip(), most)

    def _told(self, error: Exception) -> str:
        if type(error) in (ValueError, UnicodeEncodeError):
            # Its text may show a credential.
            return "a URL, a name or a credential holds a forbidden character"
        return self.shown(str(error) or type(error).__name__)

    def _connected(self, context: ssl.SSLContext | None, deadline: float) -> Connection:
        host, port = self._place.hostname or "", self._place.port or self._usual_port
        deadline = min(deadline, time.monotonic() + self._patience)
        plain = Connection(reach(host, port, deadline), deadline)
        return plain.secured(context, host) if context else plain

    @property
    def _usual_port(self) -> int:
        return 443 if self._place.scheme == "https" else 80

    def _asked(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        import http.client

        assert self._connection
        asked: Any = http.client.HTTPConnection(self._place.hostname or "", self._place.port)
        asked.default_port = self._usual_port
        asked.sock = _Socket(self._connection)
        target = self._place.path + path
        try:
            asked.request(method, target if target[:1] == "/" else f"/{target}", body, headers)
            answer = asked.getresponse()
            whole = self._body(answer)
        except http.client.IncompleteRead:
            raise NetError("its answer was cut off") from None
        if answer.will_close:
            self.close()
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, answer.reason, named, whole)

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        parts, size = [], 0
        for part in iter(partial(answer.read, PART), b""):
            parts.append(part)
            size += len(part)
            if size > self._limit:
                raise self._too_long()
        if answer.length:
            raise NetError("its answer was cut off")
        return self._unpacked(b"".join(parts))

    def _unpacked(self, body: bytes) -> bytes:
        # By its first bytes: an iLO 4 keeps some resources compressed without saying so.
        if body[:2] != b"\x1f\x8b":
            return body
        packed = zlib.decompressobj(31)
        try:
            body = packed.decompress(body, self._limit + 1)
        except zlib.error:
            raise GarbledError("its answer is no gzip") from None
        if len(body) > self._limit:
            raise self._too_long()
        if not packed.eof:
            raise NetError("its answer was cut off")
        return body

    def _too_long(self) -> LongAnswerError:
        return LongAnswerError(f"answers more than {self._limit / (1 << 20):g} MiB")


class _Socket:
    """What http.client uses of a socket; it closes one before the answer was read."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self.sendall = connection, connection.sendall

    def makefile(self, mode: str) -> io.BufferedReader:
        return reader(self._connection)

    def close(self) -> None: ...


def query_of(pairs: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Parameters as a path has them at its end: ``?a=1&b=2``, or "" without any."""
    written = urlencode(list(pairs.items()) if isinstance(pairs, Mapping) else list(pairs))
    return f"?{written}" if written else ""
