# SPDX-License-Identifier: Apache-2.0
"""One conversation with one BMC over Redfish (DMTF DSP0266): HTTPS, a session, JSON.

A GET is repeated while it fails. What changes something is sent once: if its answer does not
come, ``Lost`` says so, and only who knows what it should have done can look whether it was done.

Requests wait for one another, except where ``read_ahead`` reads at once what will be asked for.
"""

from __future__ import annotations

import base64
import json
import math
import ssl
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import replace
from types import TracebackType
from typing import Callable, TypeVar
from urllib.parse import urljoin, urlsplit

from edgetune import clock
from edgetune.bmc.credentials import Login
from edgetune.bmc.payload import MAX_TEXT, BmcError, at, errors_of, link_at, messages_of, said
from edgetune.config import Config
from edgetune.dataclass import dataclass
from edgetune.durations import duration
from edgetune.errors import InputError
from edgetune.net.http import Answer as HttpAnswer
from edgetune.net.http import GarbledError, NetError, Service

_Answered = TypeVar("_Answered")
ROOT = "/redfish/v1/"
MAX_ANSWER = 16 << 20
_CONNECT = 10.0
_PAUSES = (0.25, 1.0, 2.0)
_LONGEST_PAUSE = 10.0
# Seconds in which a BMC may still do what it did not answer.
_SETTLE = 2.0
# Of the time that is left: what an answer may take, as the other half is for looking again.
_HALF = 0.5
_REDIRECTS = 3
# How many requests a BMC gets at once: its CPU is small.
_LANES = 3
# Seconds that a further connection is waited for, and an answer over it.
_LANE_PATIENCE = 5.0
# Seconds: a BMC that answers as soon is asked one by one, as connections cost more than they save.
_SOON = 0.1
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
_STRUCK_OUT = "***"
# Names of what a BMC says to people, in small letters.
_TEXTS = ("message", "messageargs", "resolution")
# Shorter ones would stand in every other word.
_SHORTEST_SECRET = 4
_SHOWN = 40
# What a BMC says that did nothing now but will later: HPE, Dell, and Base of DSP0268. RAC0218 is
# an iDRAC on which as many people are logged in as may be.
_LATER = (
    "InvalidOperationForSystemState",
    "UnableToModifyDuringSystemPOST",
    "SYS518",
    "RAC0679",
    "RAC0218",
    "SessionLimitExceeded",
    "CreateLimitReachedForResource",
    "ServiceTemporarilyUnavailable",
    "ServiceInUnknownState",
    "ServiceShuttingDown",
)

# What a BMC may say of a wrong password, or of a session that has ended, with another status than
# 401: HPE, and Base of DSP0268.
_LOGGED_OUT = ("UnauthorizedLoginAttempt", "NoValidSession")


class Lost(BmcError):
    """A change was sent and no answer came: it may have been made, be made later, or never be."""

    def __init__(self, message: str) -> None:
        super().__init__("unknown", message)


class LoggedOut(BmcError):
    """Nothing was done, as nobody known asked for it: RFC 9110, "401 Unauthorized", and DSP0266."""

    def __init__(self, message: str) -> None:
        super().__init__("auth", message)


class Outdated(BmcError):
    """What was to be changed is no longer as it was read (412); nothing was done."""

    def __init__(self, message: str) -> None:
        super().__init__("refused", message)


@dataclass(frozen=True)
class Answer:
    """What came back for one request; names of headers are in small letters."""

    link: str
    status: int
    headers: Mapping[str, str]
    data: Mapping[str, object]

    @property
    def etag(self) -> str | None:
        """The version of the resource, if the BMC tells it."""
        etag = self.headers.get("etag") or self.data.get("@odata.etag")
        return etag if isinstance(etag, str) and etag.isascii() and etag.isprintable() else None


def trust(config: Config) -> ssl.SSLContext:
    """Whose certificates are believed; InputError names the file that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=config.bmc_ca_file or None)
    except OSError as error:
        raise InputError("configuration", "bmc_ca_file", f"cannot be used: {error}") from None
    if not config.bmc_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Client:
    """A conversation of at most ``timeout`` seconds; the session ends with the ``with`` block.

    A session may end before: the first request that is told so (401) is sent again after one more
    login.

    All methods raise BmcError: ``unreachable``, ``tls``, ``auth``, ``busy``, ``garbage``; and
    ``refused`` where a link or a redirect leads to another host. ``has_changed`` says whether a
    change was sent that the BMC did not turn down. ``permit`` is called before each change, and
    what it raises is raised. The login alone is tried inside of ``turn``, entered after the service
    root was read; what that waits counts for nothing.
    """

    def __init__(
        self,
        address: str,
        login: Login,
        context: ssl.SSLContext,
        timeout: float,
        permit: Callable[[], None] = lambda: None,
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._address, self._login, self._context = address, login, context
        self._permit, self._turn = permit, turn
        try:
            parts = urlsplit(address)
            self._host, self._port = parts.hostname or "", parts.port or 443
            self._origin = parts._replace(path="", query="", fragment="").geturl()
        except ValueError as error:
            raise BmcError("refused", f"is no address: {error}") from None
        self._timeout = timeout
        self._end = clock.monotonic() + timeout * (1 - _FAREWELL)
        self._headers: dict[str, str] = {}
        # Links by their tokens.
        self._sessions: dict[str, str] = {}
        self._may_log_in_again = False
        self._connections: dict[int, _Connection] = {}
        self._ahead: dict[str, Answer | None] = {}
        self._took = 0.0
        self._has_enough = False
        self.root: Mapping[str, object] = {}
        self.has_changed = False

    def __enter__(self) -> Client:
        try:
            self.root = self.get(ROOT).data
            self._log_in_by_turn()
            self._may_log_in_again = True
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end = max(clock.monotonic(), self._end) + self._timeout * _FAREWELL
        try:
            # Each in its own name: after a restart a BMC may have given an old link to somebody.
            for token, session in self._sessions.items():
                self._headers["X-Auth-Token"] = token
                with suppress(BmcError):
                    self._send("DELETE", session)
        finally:
            self._hang_up()

    def get(self, link: str) -> Answer:
        """Read a resource; BmcError ``garbage`` if it is not there or is no JSON object."""
        answer = self.find(link)
        if answer is None:
            raise BmcError("garbage", f"{said(link)} is not there")
        return answer

    def find(self, link: str) -> Answer | None:
        """Read a resource; None if it is not there."""
        if link in self._ahead:
            return self._ahead.pop(link)
        return self._logged_in(lambda: self._find(link))

    def read_ahead(self, links: Iterable[str]) -> Mapping[str, Answer | None]:
        """Read these at once, over a few connections; the next ``find`` of each has its answer.

        What fails is not among the answers: a BMC that has enough of so many is asked one by one
        from then on. A change makes all of them void. A BMC that answers soon is asked nothing
        ahead.
        """
        wanted = [link for link in dict.fromkeys(links) if link and link not in self._ahead]
        found: dict[str, Answer | None] = {}

        def read(lane: int) -> None:
            try:
                for link in wanted[lane::_LANES]:
                    found[link] = self._find(link, lane, pauses=())
            except BmcError:
                self._has_enough = True

        if len(wanted) > 1 and self._took >= _SOON and not self._has_enough:
            with ThreadPoolExecutor(_LANES) as pool:
                list(pool.map(read, range(_LANES)))
        self._ahead.update(found)
        return found

    def _find(self, link: str, lane: int = 0, pauses: Sequence[float] = _PAUSES) -> Answer | None:
        for pause in (*pauses, None):
            try:
                answer, body = self._follow(link, lane)
            except NetError as error:
                self._pause(self._broken(error), pause)
                continue
            if answer.status in (404, 410):
                return None
            if answer.status < 300:
                found = self._parsed(answer, body)
                if not errors_of(found.data):
                    return found
            self._pause(self._refusal("GET", answer, body), pause, _retry_after(answer))
        raise AssertionError("the last pause is None")

    def change(
        self,
        method: str,
        link: str,
        body: Mapping[str, object] | None = None,
        etag: str | None = None,
    ) -> Answer:
        """Send a change, once; raises Lost, Outdated, or BmcError (then nothing was done)."""

        def send() -> Answer:
            self._permit()
            return self._send(method, link, body, etag)

        self._ahead.clear()
        try:
            answer = self._logged_in(send)
        except Lost:
            self.has_changed = True
            raise
        self.has_changed = True
        return answer

    def let_settle(self) -> None:
        """Wait until it is worth a look what became of a change whose answer was lost."""
        clock.sleep(max(0.0, min(_SETTLE, self._left() / 4)))

    def without_secrets(self, text: str) -> str:
        """The same text; what the BMC was logged in to with, and may repeat, is struck out."""
        for secret in self._secrets:
            text = text.replace(secret, _STRUCK_OUT)
        return text

    @property
    def _secrets(self) -> list[str]:
        basic = self._headers.get("Authorization", "").partition(" ")[2]
        own = [self._login.password, basic, *self._sessions]
        return [secret for secret in own if len(secret) >= _SHORTEST_SECRET]

    def location(self, answer: Answer) -> str:
        """The path of what a change created, or ""; a BMC may know itself by another name."""
        try:
            place = urlsplit(answer.headers.get("location", ""))
        except ValueError:
            return ""
        return self._path(place._replace(scheme="", netloc="").geturl()) if place.path else ""

    def _send(
        self,
        method: str,
        link: str,
        body: Mapping[str, object] | None = None,
        etag: str | None = None,
    ) -> Answer:
        answer, raw = self._sent(method, link, body, etag)
        if answer.status == 412:
            raise Outdated(f"{said(link)} changed in between")
        data = self._json(raw)
        if answer.status < 300 and not errors_of(data):
            return replace(answer, data=data) if isinstance(data, dict) else answer
        problem = self._refusal(method, answer, raw)
        # Whatever stands before a BMC may answer 503 after the BMC acted; a message is its own. An
        # error that calls itself a success may have done a part.
        if not 300 <= answer.status < 500 and not _says_later(data):
            raise Lost(str(problem))
        raise problem

    def _sent(
        self,
        method: str,
        link: str,
        body: Mapping[str, object] | None = None,
        etag: str | None = None,
        share: float = _HALF,
    ) -> tuple[Answer, bytes]:
        path = self._path(link)
        condition = {"If-Match": etag} if etag else {}
        # A connection that was kept may be gone by now, and nobody could tell what arrived.
        with closing(self._new_connection()) as connection:
            connection.share = share
            try:
                connection.connect()
            except NetError as error:
                raise self._broken(error) from None
            try:
                return self._exchange(connection, method, path, body, condition)
            except (NetError, BmcError) as error:
                raise Lost(f"no answer to {method} {said(link)}: {_what(error)}") from None

    def _log_in_by_turn(self) -> None:
        began = clock.monotonic()
        with self._turn():
            self._end += clock.monotonic() - began
            self._log_in()

    def _logged_in(self, ask: Callable[[], _Answered]) -> _Answered:
        """What ``ask`` answers; where the BMC knows us no more, after one more login."""
        try:
            return ask()
        except LoggedOut:
            if not self._may_log_in_again:
                raise
        self._may_log_in_again = False
        self._headers.pop("X-Auth-Token", None)
        self._log_in_by_turn()
        return ask()

    def _log_in(self) -> None:
        links = at(self.root, "Links") or at(self.root, "links")
        sessions = link_at(links, "Sessions")
        if sessions and self._open_session(sessions):
            return
        pair = f"{self._login.username}:{self._login.password}".encode()
        self._headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()
        # Only what may not be read by everybody shows whether the BMC takes them.
        self.get(link_at(self.root, "Systems"))

    def _open_session(self, sessions: str) -> bool:
        """False where the BMC has none to open (405). One that has no room has it soon.

        The answer is waited for as long as there is time: it alone tells which session to end, and
        a login is not repeated.
        """
        body = {"UserName": self._login.username, "Password": self._login.password}
        for pause in (*_PAUSES, None):
            try:
                answer, raw = self._sent("POST", sessions, body, share=1.0)
            except Lost as error:
                left = "; a session may be left there until it ends by itself"
                raise BmcError("unreachable", f"{error}{left}") from None
            if answer.status == 405:
                return False
            token = answer.headers.get("x-auth-token", "")
            if answer.status < 300 and token:
                self._headers["X-Auth-Token"] = token
                self._sessions[token] = self.location(answer) or link_at(self._json(raw))
                return True
            if answer.status < 300 and not errors_of(self._json(raw)):
                raise BmcError("garbage", "opened a session without a token")
            problem = self._refusal("POST", answer, raw)
            if answer.status >= 500:
                problem = BmcError("busy", str(problem))
            self._pause(problem, pause, _retry_after(answer))
        raise AssertionError("the last pause is None")

    def _pause(self, problem: BmcError, pause: float | None, at_least: float = 0.0) -> None:
        """Wait for what is over soon; raises the problem if it is another one, or time is up."""
        is_over_soon = problem.reason in ("busy", "unreachable")
        wait = max(pause or 0.0, at_least)
        if pause is None or not is_over_soon or self._left() < wait:
            raise problem
        clock.sleep(wait)

    def _follow(self, link: str, lane: int) -> tuple[Answer, bytes]:
        for _ in range(_REDIRECTS):
            path = self._path(link)
            if lane not in self._connections:
                self._connections[lane] = self._new_connection(_LANE_PATIENCE if lane else math.inf)
            begun = clock.monotonic()
            try:
                answer, body = self._exchange(self._connections[lane], "GET", path)
            except BaseException:
                self._connections.pop(lane).close()
                raise
            self._took = clock.monotonic() - begun
            if not 300 <= answer.status < 400 or "location" not in answer.headers:
                return answer, body
            try:
                link = urljoin(f"{self._address}{path}", answer.headers["location"])
            except ValueError:
                raise BmcError("garbage", f"{said(link)} is redirected to no link") from None
        raise BmcError("garbage", f"{said(link)} is redirected for ever")

    def _exchange(
        self,
        connection: _Connection,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> tuple[Answer, bytes]:
        connection.patience = min(max(0.0, self._left()) * connection.share, connection.most)
        headers = {"Accept": "application/json", "OData-Version": "4.0"}
        headers.update(self._headers, **(more or {}))
        data = None
        if body is not None or method == "POST":
            data = json.dumps(body or {}).encode()
            headers["Content-Type"] = "application/json"
        until = clock.monotonic() + connection.patience
        try:
            answer = connection.ask(method, path, until, data, headers)
        except GarbledError as error:
            raise BmcError("garbage", f"{said(path)}: {error}") from None
        if method == "GET" and _ended_early(answer):
            raise NetError("its answer was cut off")
        return Answer(path, answer.status, answer.headers, {}), answer.body

    def _parsed(self, answer: Answer, raw: bytes) -> Answer:
        data = self._json(raw)
        if not isinstance(data, dict):
            begun = said(self.without_secrets(raw[:MAX_TEXT].decode(errors="replace")), _SHOWN)
            raise BmcError("garbage", f"{said(answer.link)} is no JSON object: {begun!r}")
        return Answer(answer.link, answer.status, answer.headers, data)

    def _refusal(self, method: str, answer: Answer, raw: bytes) -> BmcError:
        """What an answer that is no success means."""
        data = self._json(raw)
        what = f"answered {answer.status} to {method} {said(answer.link)}{_why(data)}"
        if answer.status == 401 or _says(data, _LOGGED_OUT):
            return LoggedOut(what)
        if answer.status == 403:
            return BmcError("auth", what)
        if answer.status in (429, 503) or _says_later(data):
            return BmcError("busy", what)
        if answer.status < 300:
            return BmcError("garbage", what)
        if answer.status < 400:
            place = said(answer.headers.get("location", ""))
            return BmcError("refused", f"{what}: a redirect of a change to {place!r}")
        return BmcError("busy" if method == "GET" and answer.status >= 500 else "failed", what)

    def _json(self, raw: bytes) -> object:
        data = _json(raw)
        text = raw.decode(errors="replace")
        written = [*self._secrets, *(json.dumps(secret)[1:-1] for secret in self._secrets)]
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

    def _new_connection(self, most: float = math.inf) -> _Connection:
        if self._left() <= 0:
            raise BmcError("unreachable", f"did not answer within {duration(self._timeout)}")
        limit = min(_CONNECT, most, self._left())
        context, own = self._context, self._origin
        made = _Connection(own, context=lambda: context, limit=MAX_ANSWER, patience=limit)
        made.most = most
        return made

    def _left(self) -> float:
        return self._end - clock.monotonic()

    def _hang_up(self) -> None:
        while self._connections:
            self._connections.popitem()[1].close()

    def _broken(self, error: Exception) -> BmcError:
        below = error.__cause__
        if isinstance(below, ssl.SSLCertVerificationError):
            hint = _HINTS.get(below.verify_code, "")
            return BmcError("tls", f"its certificate is not trusted: {_what(below)}{hint}")
        if isinstance(below, ssl.SSLError):
            return BmcError("tls", f"TLS failed: {_what(below)}")
        return BmcError("unreachable", _what(error))


class _Connection(Service):
    """A connection whose answer has to be through within ``patience`` seconds, ``most`` at most."""

    patience, most, share = 0.0, math.inf, _HALF


def _ended_early(answer: HttpAnswer) -> bool:
    """Whether a body is half an object whose length was not told: the connection ended it."""
    told = "content-length" in answer.headers or "transfer-encoding" in answer.headers
    return not told and answer.body.lstrip()[:1] == b"{" and _json(answer.body) is None


def _what(error: BaseException) -> str:
    return said(getattr(error, "verify_message", "") or str(error) or type(error).__name__)


def _json(raw: bytes) -> object:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _why(data: object) -> str:
    """The first message of an error that tells what is wrong, as ``: text``."""
    found = errors_of(data) or messages_of(at(data, "error")) or messages_of(data)
    return f": {found[0].text}" if found else ""


def _says_later(data: object) -> bool:
    return _says(data, _LATER)


def _says(data: object, words: Sequence[str]) -> bool:
    found = messages_of(data) + messages_of(at(data, "error"))
    return any(word in message.id for message in found for word in words)


def _retry_after(answer: Answer) -> float:
    text = answer.headers.get("retry-after", "")
    return min(float(text), _LONGEST_PAUSE) if text.isdecimal() and text.isascii() else 0.0
