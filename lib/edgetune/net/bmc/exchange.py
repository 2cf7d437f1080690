# SPDX-License-Identifier: Apache-2.0
"""Requests to one BMC and their answers, all within one time: HTTPS, links, redirects, pauses."""

from __future__ import annotations

import json
import math
import ssl
from collections.abc import Mapping
from contextlib import closing
from typing import ClassVar
from urllib.parse import urljoin, urlsplit

from edgetune.base import clock
from edgetune.base.durations import duration
from edgetune.net.bmc.answers import Answer, Lost, parsed
from edgetune.net.bmc.payload import BmcError, said
from edgetune.net.http import GarbledError, NetError, Service, long_enough, struck

ROOT = "/redfish/v1/"
_CONNECT = 10.0
# Of the time that is left: what an answer may take, as the other half is for looking again.
_HALF = 0.5
_REDIRECTS = 3
# Seconds that a further connection is waited for, and an answer over it.
_LANE_PATIENCE = 5.0
# Of the time of a conversation: what is kept to end its session.
_FAREWELL = 0.1
_UNKNOWN_CA = "; name the CA that signed it, or the certificate itself, in bmc_ca_file"
_OTHER_NAME = "; give it one for this address, or have bmc.address name it as its certificate does"
# By the code of OpenSSL (x509_vfy.h, X509_V_ERR_*).
_HINTS = {
    9: "; set its clock, or this one",
    10: "; give it a new one, or set its clock and this one",
    **dict.fromkeys((2, 18, 19, 20, 21), _UNKNOWN_CA),
    **dict.fromkeys((62, 64), _OTHER_NAME),
}
# Names of what a BMC says to people, in small letters.
_TEXTS = ("message", "messageargs", "resolution")


class Exchange:
    """Asks the BMC at ``address`` for at most ``timeout`` seconds; BmcError where it does not do.

    ``headers`` go with each request, and ``secrets`` are struck out of what the BMC says to people.
    ``took`` is how many seconds the newest answer took, and ``pauses`` those between attempts.
    """

    pauses: ClassVar[tuple[float, ...]] = (0.25, 1.0, 2.0)

    def __init__(self, address: str, context: ssl.SSLContext, timeout: float) -> None:
        self._address, self._context, self._timeout = address, context, timeout
        try:
            parts = urlsplit(address)
            self._host, self._port = parts.hostname or "", parts.port or 443
            self._origin = parts._replace(path="", query="", fragment="").geturl()
        except ValueError as error:
            raise BmcError("refused", f"is no address: {error}") from None
        self._end = clock.monotonic() + timeout * (1 - _FAREWELL)
        self._connections: dict[int, Service] = {}
        self.headers: dict[str, str] = {}
        self.secrets: list[str] = []
        self.took = 0.0

    @property
    def left(self) -> float:
        """Seconds until no more is sent."""
        return self._end - clock.monotonic()

    def extend(self, seconds: float) -> None:
        """So long counts for nothing."""
        self._end += seconds

    def begin_farewell(self) -> None:
        """From now on there is the time that was kept to end sessions."""
        self._end = max(clock.monotonic(), self._end) + self._timeout * _FAREWELL

    def hang_up(self) -> None:
        """Close what is open."""
        while self._connections:
            self._connections.popitem()[1].close()

    def read(self, link: str, lane: int = 0) -> tuple[Answer, bytes]:
        """The answer to a GET and its body, after redirects, over the connection of that lane.

        BmcError, or NetError for what may work the next time.
        """
        for _ in range(_REDIRECTS):
            path, most = self._path(link), _LANE_PATIENCE if lane else math.inf
            if lane not in self._connections:
                self._connections[lane] = self._new_connection(most)
            begun = clock.monotonic()
            try:
                patience = min(max(0.0, self.left) * _HALF, most)
                answer, body = self._exchanged(self._connections[lane], patience, "GET", path)
            except BaseException:
                self._connections.pop(lane).close()
                raise
            self.took = clock.monotonic() - begun
            if not 300 <= answer.status < 400 or "location" not in answer.headers:
                return answer, body
            try:
                link = urljoin(f"{self._address}{path}", answer.headers["location"])
            except ValueError:
                raise BmcError("garbage", f"{said(link)} is redirected to no link") from None
        raise BmcError("garbage", f"{said(link)} is redirected for ever")

    def send(
        self,
        method: str,
        link: str,
        body: Mapping[str, object] | None = None,
        etag: str | None = None,
        share: float = _HALF,
    ) -> tuple[Answer, bytes]:
        """The answer to what changes something and its body; sent once, Lost if none came.

        It may take that ``share`` of the time that is left.
        """
        path = self._path(link)
        condition = {"If-Match": etag} if etag else {}
        # A connection that was kept may be gone by now, and nobody could tell what arrived.
        with closing(self._new_connection()) as connection:
            try:
                connection.connect()
            except NetError as error:
                raise broken(error) from None
            try:
                patience = max(0.0, self.left) * share
                return self._exchanged(connection, patience, method, path, body, condition)
            except (NetError, BmcError) as error:
                raise Lost(f"no answer to {method} {said(link)}: {_text_of(error)}") from None

    def pause(self, problem: BmcError, pause: float | None, at_least: float = 0.0) -> None:
        """Wait for what is over soon; raises the problem if it is another one, or time is up."""
        is_over_soon = problem.reason in ("busy", "unreachable")
        wait = max(pause or 0.0, at_least)
        if pause is None or not is_over_soon or self.left < wait:
            raise problem
        clock.sleep(wait)

    def location(self, answer: Answer) -> str:
        """The path of what a change created, or ""; a BMC may know itself by another name."""
        try:
            place = urlsplit(answer.headers.get("location", ""))
        except ValueError:
            return ""
        return self._path(place._replace(scheme="", netloc="").geturl()) if place.path else ""

    def without_secrets(self, text: str) -> str:
        """The same text; what the BMC was logged in to with, and may repeat, is struck out."""
        return struck(text, self.secrets)

    def parsed(self, raw: bytes) -> object:
        """What a body says in JSON, without secrets in its texts; None where it is none."""
        data = parsed(raw)
        text = raw.decode(errors="replace")
        secrets = long_enough(self.secrets)
        written = [*secrets, *(json.dumps(secret)[1:-1] for secret in secrets)]
        if not any(secret in text for secret in written):
            return data
        try:
            return self._struck(data, is_text=False)
        except RecursionError:
            return None

    def _struck(self, data: object, is_text: bool) -> object:
        """The same without secrets in its texts; links and values may have one as a word."""
        if isinstance(data, dict):
            texts = ((name, name.lower() in _TEXTS) for name in data)
            return {name: self._struck(data[name], is_one) for name, is_one in texts}
        if isinstance(data, list):
            return [self._struck(value, is_text) for value in data]
        return self.without_secrets(data) if is_text and isinstance(data, str) else data

    def _exchanged(
        self,
        connection: Service,
        patience: float,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> tuple[Answer, bytes]:
        headers = {"Accept": "application/json", "OData-Version": "4.0"}
        headers.update(self.headers, **(more or {}))
        data = None
        if body is not None or method == "POST":
            data = json.dumps(body or {}).encode()
            headers["Content-Type"] = "application/json"
        try:
            answer = connection.ask(method, path, clock.monotonic() + patience, data, headers)
        except GarbledError as error:
            raise BmcError("garbage", f"{said(path)}: {error}") from None
        is_told = "content-length" in answer.headers or "transfer-encoding" in answer.headers
        # Else the connection ended the body, and maybe in the middle of an object.
        begins = method == "GET" and not is_told and answer.body.lstrip()[:1] == b"{"
        if begins and parsed(answer.body) is None:
            raise NetError("its answer was cut off")
        return Answer(path, answer.status, answer.headers, {}), answer.body

    def _path(self, link: str) -> str:
        """A link as a path of this BMC."""
        try:
            if not (link and link.isascii() and link.isprintable()) or " " in link:
                raise ValueError
            parts = urlsplit(urljoin(self._address + ROOT, link))
            origin = (parts.scheme, parts.hostname, parts.port or 443)
        except ValueError:
            raise BmcError("garbage", f"{said(link)!r} is no link") from None
        if origin != ("https", self._host.lower(), self._port):
            raise BmcError("refused", f"{said(link)!r} leads to another host")
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def _new_connection(self, most: float = math.inf) -> Service:
        if self.left <= 0:
            raise BmcError("unreachable", f"did not answer within {duration(self._timeout)}")
        limit = min(_CONNECT, most, self.left)
        return Service(self._origin, context=lambda: self._context, patience=limit)


def broken(error: Exception) -> BmcError:
    """What a NetError means."""
    below = error.__cause__
    if isinstance(below, ssl.SSLCertVerificationError):
        hint = _HINTS.get(below.verify_code, "")
        return BmcError("tls", f"its certificate is not trusted: {_text_of(below)}{hint}")
    if isinstance(below, ssl.SSLError):
        return BmcError("tls", f"TLS failed: {_text_of(below)}")
    return BmcError("unreachable", _text_of(error))


def _text_of(error: BaseException) -> str:
    return said(getattr(error, "verify_message", "") or str(error) or type(error).__name__)
