# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 with one service (RFC 9112), over one connection that is kept between questions.

A question is sent once, and never to another place: tokens are for one service. A GET alone is sent
again, where the service ended the connection that was kept meanwhile. Neither a proxy nor a
``.netrc`` of the environment is meant for it.
"""

from __future__ import annotations

import io
import json
import math
import re
import threading
import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit

from edgetune.base import clock
from edgetune.base.errors import EdgetuneError
from edgetune.base.files import load_json
from edgetune.base.sanitize import shortened
from edgetune.net.connection import PART, Connection, Received, Tls, reach

if TYPE_CHECKING:
    import http.client
    import ssl

CONNECT = 5.0
"""Seconds to connect, TLS included."""
LIMIT = 16 << 20
"""Bytes of the longest body, unless a service may say more."""

_MOST_SHOWN = 300
_SHORTEST_SECRET = 4
# Of what is not the body: headers, answers before the answer (1xx), the frames of chunks and of
# TLS. http.client bounds a line of them, and neither all of them nor their time.
_BESIDE = 1 << 20
_GZIP = b"\x1f\x8b"
_LENGTH = re.compile("[0-9]{1,18}")
_CODINGS = ("", "identity", "gzip", "x-gzip")

Asking = TypeVar("Asking", bound="Client")


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

    def document(self) -> Any:
        """What the body says in JSON; ValueError where it is none."""
        return load_json(self.body.decode("utf-8"))

    @property
    def time(self) -> float | None:
        """The service's clock in epoch seconds, in whole ones; None where it does not tell."""
        from email.utils import parsedate_to_datetime

        try:
            return parsedate_to_datetime(self.headers.get("date", "")).timestamp()
        except (TypeError, ValueError):
            return None


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
        limit: int = 0,
        patience: float = CONNECT,
    ) -> None:
        self._place, self._context = urlsplit(url), context
        self._secrets = [*secrets]
        self._headers = {"Accept-Encoding": "gzip", **headers}
        self._limit, self._patience = limit or LIMIT, patience
        self._most = 2 * self._limit + _BESIDE
        self._connection: Connection | None = None
        self._asking = threading.Lock()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
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
            raise UnreachedError(f"does not answer: {self._error_text(error)}") from error

    def ask(
        self,
        method: str,
        path: str,
        deadline: float,
        body: bytes | None = None,
        headers: Mapping[str, str] = {},
    ) -> Answer:
        """The answer to a question about a path below the URL, before ``deadline``.

        It is of ``clock.monotonic`` and holds for everything. UnreachedError, LongAnswerError, or
        another NetError: then the question may have arrived.
        """
        # An action may leave a thread behind that writes what nobody waits for.
        if not self._asking.acquire(timeout=max(0.0, deadline - clock.monotonic())):
            raise UnreachedError("does not answer: another question was not over in time")
        try:
            return self._asked(deadline, method, path, body, {**self._headers, **headers})
        except EdgetuneError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise NetError(f"does not answer: {self._error_text(error)}") from error
        finally:
            self._asking.release()

    def tell(self, method: str, path: str, deadline: float, document: object = None) -> Answer:
        """The answer to a document in JSON, if one is given; as `ask` otherwise."""
        if document is None:
            return self.ask(method, path, deadline)
        kind = {"Content-Type": "application/json"}
        return self.ask(method, path, deadline, json.dumps(document).encode(), kind)

    def shown(self, text: str, most: int = _MOST_SHOWN) -> str:
        """A text of the service in one short line, without secrets that it may repeat."""
        return shortened(struck(text, self._secrets).strip(), most)

    def _error_text(self, error: Exception) -> str:
        if type(error) in (ValueError, UnicodeEncodeError):
            # Its text may show a credential.
            return "a URL, a name or a credential holds a forbidden character"
        return self.shown(str(error) or type(error).__name__)

    def _connected(self, context: ssl.SSLContext | None, deadline: float) -> Connection:
        host, port = self._place.hostname or "", self._place.port or self._usual_port
        deadline = min(deadline, clock.monotonic() + self._patience)
        plain = Connection(reach(host, port, deadline), deadline)
        if context is None:
            return plain
        from edgetune.net.tls import secured

        return secured(plain, context, host)

    @property
    def _usual_port(self) -> int:
        return 443 if self._place.scheme == "https" else 80

    @property
    def _host(self) -> str:
        """As RFC 9112 has it (3.2); what follows % in an IPv6 address is of this host alone."""
        host, port = (self._place.hostname or "").partition("%")[0], self._place.port
        name = f"[{host}]" if ":" in host else host
        return name if port in (None, self._usual_port) else f"{name}:{port}"

    def _asked(self, deadline: float, *asked: Any) -> Answer:
        kept = self._connection
        self.connect(deadline)
        try:
            return self._exchanged(*asked)
        except ConnectionError:
            # RFC 9112, 9.3.1: it may have ended a connection that was idle as we sent.
            if asked[0] != "GET" or self._connection is not kept:
                raise
        self.close()
        self.connect(deadline)
        return self._exchanged(*asked)

    def _exchanged(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        import http.client

        assert self._connection
        asked: Any = http.client.HTTPConnection("")
        asked.sock = sock = _Socket(self._connection)
        target = self._place.path + path
        if self._place.query:
            target += f"{'&' if '?' in target else '?'}{self._place.query}"
        target = target if target[:1] == "/" else f"/{target}"
        asked.request(method, target, body, {"Host": self._host, **headers})
        try:
            answer = asked.getresponse()
            _check(answer, sock.file)
            whole = self._body(answer)
        except http.client.IncompleteRead:
            raise NetError("its answer was cut off") from None
        except ValueError:
            raise GarbledError("its answer is no HTTP") from None
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
        if body[:2] != _GZIP:
            return body
        unpacked = b""
        # One member may follow another (RFC 1952, 2.2).
        while body[:2] == _GZIP:
            packed = zlib.decompressobj(31)
            try:
                unpacked += packed.decompress(body, self._limit + 1 - len(unpacked))
            except zlib.error:
                raise GarbledError("its answer is no gzip") from None
            if len(unpacked) > self._limit:
                raise self._too_long()
            if not packed.eof:
                raise NetError("its answer was cut off")
            body = packed.unused_data
        return unpacked

    def _too_long(self) -> LongAnswerError:
        return LongAnswerError(f"answers more than {self._limit / (1 << 20):g} MiB")


def _check(answer: http.client.HTTPResponse, file: _File) -> None:
    """NetError unless the headers are whole and say where the answer ends.

    http.client takes headers that were cut off for whole ones, and a length that it cannot read
    for none (RFC 9112, 6.3 and 8).
    """
    if file.line not in (b"\r\n", b"\n"):
        raise NetError("its answer was cut off")
    lengths = {each.strip() for each in answer.headers.get_all("Content-Length", ())}
    if not answer.chunked and (len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths))):
        raise GarbledError("its answer does not say how long it is")
    if answer.status < 200:
        raise GarbledError(f"answers {answer.status}, which was not asked for")
    coding = answer.headers.get("Content-Encoding", "").lower()
    if coding not in _CODINGS:
        raise GarbledError(f"its answer is encoded as {shortened(coding, 20)!r}, not as gzip")


class _File(io.BufferedReader):
    """What a peer sends; ``line`` is the last one that was read."""

    line = b""

    def readline(self, size: int | None = -1) -> bytes:
        self.line = super().readline(size)
        return self.line


class _Socket:
    """What http.client uses of a socket; it closes one before the answer was read."""

    def __init__(self, connection: Connection) -> None:
        self.sendall, self.file = connection.sendall, _File(Received(connection), PART)

    def makefile(self, mode: str) -> io.BufferedReader:
        return self.file

    def close(self) -> None: ...


class Client:
    """What asks one service, and leaves it at the end of its ``with`` block."""

    _service: Service

    def __enter__(self: Asking) -> Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._service.close()


def struck(text: str, secrets: Iterable[str]) -> str:
    """A text without secrets, as far as they are long enough."""
    for secret in long_enough(secrets):
        text = text.replace(secret, "***")
    return text


def long_enough(secrets: Iterable[str]) -> list[str]:
    """Those that are struck out of texts; shorter ones would stand in every other word."""
    return [secret for secret in secrets if len(secret) >= _SHORTEST_SECRET]


def query_of(pairs: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Parameters as a path has them at its end: ``?a=1&b=2``, or "" without any."""
    written = urlencode(list(pairs.items()) if isinstance(pairs, Mapping) else list(pairs))
    return f"?{written}" if written else ""
