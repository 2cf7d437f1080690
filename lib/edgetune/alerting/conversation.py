# SPDX-License-Identifier: Apache-2.0
"""HTTP with one member of a cluster of Alertmanager, within one deadline for all of it."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from edgetune.alertmanager import Alertmanager
from edgetune.errors import EdgetuneError, InputError
from edgetune.sanitize import shortened
from edgetune.secret_files import authorization

LIMIT = 16 << 20
"""Bytes of the largest answer: 16 MB hold some 25,000 silences."""
_API = "/api/v2"
_SHOWN = 200


class AlertmanagerError(EdgetuneError):
    """Alertmanager did not answer, not in time, or not as it does."""


class DeclinedError(AlertmanagerError):
    """Alertmanager answered that it does not do what was asked."""


class Conversation:
    """Requests over one connection, until ``deadline`` (of ``time.monotonic``).

    The timeout of a socket starts anew with every byte. So a timer cuts the connection at the
    deadline. InputError if a file of the configuration cannot be used.
    """

    def __init__(self, settings: Alertmanager, url: str, deadline: float) -> None:
        self._url = url
        parts = urlsplit(url)
        self._path = parts.path + _API
        login = authorization(
            settings.bearer_token_file,
            settings.username,
            settings.password_file,
            "configuration",
            inside="alertmanager.",
        )
        self._secrets = login.secrets
        self._headers = {"Content-Type": "application/json", **login.headers}
        self._deadline = deadline
        self._connection = _connection(settings, parts.scheme, parts.netloc)
        self._cut = threading.Timer(self._left, self._hang_up)
        self._cut.daemon = True

    def __enter__(self) -> Conversation:
        self._cut.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cut.cancel()
        self._connection.close()

    def ask(self, method: str, path: str, body: object = None) -> tuple[Any, float]:
        """The answer's JSON (None without a body), and Alertmanager's clock in epoch seconds.

        AlertmanagerError if it did not answer, or answered no JSON; DeclinedError if it refused.
        """
        sent = None if body is None else json.dumps(body).encode()
        try:
            answer, text = self._exchange(method, self._path + path, sent)
        except (OSError, http.client.HTTPException) as error:
            late = isinstance(error, TimeoutError) or time.monotonic() >= self._deadline
            why = "its answer did not come in time" if late else str(error)
            raise self.failed(why or type(error).__name__) from None
        except ValueError:
            # Its text may show a credential.
            raise self.failed("its name or its credentials hold a forbidden character") from None
        if not 200 <= answer.status < 300:
            told = shortened(text.decode("utf-8", "replace"), _SHOWN)
            raise DeclinedError(self._shown(f"{answer.status} {answer.reason} to {method}: {told}"))
        return self._parsed(text), _clock(answer.getheader("Date"))

    def failed(self, why: str) -> AlertmanagerError:
        """The error that says of this member why it is of no use, to be raised."""
        return AlertmanagerError(self._shown(why))

    def _shown(self, why: str) -> str:
        for secret in self._secrets:
            # A proxy may repeat what it refuses.
            why = why.replace(secret, "***")
        return shortened(f"{self._url}: {why}")

    def _exchange(
        self, method: str, path: str, sent: bytes | None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        # Of a connection that has to be made anew.
        self._connection.timeout = self._left
        self._connection.request(method, path, sent, self._headers)
        answer = self._connection.getresponse()
        text = answer.read(LIMIT + 1)
        if len(text) > LIMIT:
            raise http.client.HTTPException(f"its answer is longer than {LIMIT >> 20} MB")
        # One that is cut off within its headers looks whole.
        if answer.length or time.monotonic() >= self._deadline:
            raise http.client.HTTPException("its answer was cut off")
        return answer, text

    def _parsed(self, text: bytes) -> Any:
        try:
            return json.loads(text) if text else None
        except (ValueError, RecursionError):
            raise self.failed("its answer is no JSON") from None

    @property
    def _left(self) -> float:
        return max(0.001, self._deadline - time.monotonic())

    def _hang_up(self) -> None:
        sock = self._connection.sock
        with suppress(OSError, AttributeError):
            sock.shutdown(socket.SHUT_RDWR)


def _connection(settings: Alertmanager, scheme: str, place: str) -> http.client.HTTPConnection:
    try:
        if scheme == "http":
            return http.client.HTTPConnection(place)
        return http.client.HTTPSConnection(place, context=_trust(settings))
    except http.client.InvalidURL as error:
        raise InputError("configuration", "alertmanager.url", str(error)) from None


def _trust(settings: Alertmanager) -> ssl.SSLContext:
    """Whose certificates are believed, and the one of our own."""
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.certificate_file:
            # Without a password it would ask for one on the terminal.
            context.load_cert_chain(settings.certificate_file, settings.key_file, password="")
    except OSError as error:
        raise InputError("configuration", "alertmanager", f"TLS files: {error}") from None
    return context


def _clock(date: str | None) -> float:
    """What a header says, else our own clock."""
    try:
        return parsedate_to_datetime(date or "").timestamp()
    except (TypeError, ValueError):
        return time.time()
