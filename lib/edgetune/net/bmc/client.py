# SPDX-License-Identifier: Apache-2.0
"""One conversation with one BMC over Redfish (DMTF DSP0266): a session (13.3), or HTTP Basic where
a BMC has none; JSON.

A GET is repeated while it fails. What changes something is sent once: if its answer does not
come, ``Lost`` says so, and only who knows what it should have done can look whether it was done.

Requests wait for one another, except where ``read_ahead`` reads at once what will be asked for.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from types import TracebackType
from typing import Callable, TypeVar

from edgetune.base import clock
from edgetune.base.errors import InputError
from edgetune.net.bmc.answers import Answer, LoggedOut, Lost, Outdated, refusal, says_later
from edgetune.net.bmc.credentials import Login
from edgetune.net.bmc.exchange import ROOT, Exchange, broken
from edgetune.net.bmc.payload import MAX_TEXT, BmcError, at, errors_of, link_at, said
from edgetune.net.http import NetError
from edgetune.site.config import Config

_Answered = TypeVar("_Answered")
# Seconds in which a BMC may still do what it did not answer.
_SETTLE = 2.0
# How many requests a BMC gets at once: its CPU is small.
_LANES = 3
# Seconds: a BMC that answers as soon is asked one by one, as connections cost more than they save.
_SOON = 0.1
_SHOWN = 40


def trust(config: Config) -> ssl.SSLContext:
    """Whose certificates are believed; InputError names the file that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=config.bmc_ca_file or None)
    except OSError as error:
        text = f"{config.bmc_ca_file} cannot be used: {error}"
        raise InputError("configuration", "bmc_ca_file", text) from None
    if not config.bmc_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Client:
    """A conversation of at most ``timeout`` seconds; the session ends with the ``with`` block.

    A session may end before: the first request with that answer (401) is sent again after one more
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
        self._exchange = Exchange(address, context, timeout)
        self._session = Session(self._exchange, login, turn)
        self._permit = permit
        self._may_log_in_again = False
        self._ahead: dict[str, Answer | None] = {}
        self._has_enough = False
        self.root: Mapping[str, object] = {}
        self.has_changed = False
        self.without_secrets = self._exchange.without_secrets
        self.location = self._exchange.location

    def __enter__(self) -> Client:
        try:
            self.root = self.get(ROOT).data
            self._session.open(self.root, self.get)
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
        self._exchange.begin_farewell()
        try:
            self._session.close()
        finally:
            self._exchange.hang_up()

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
        answers: dict[str, Answer | None] = {}

        def read(lane: int) -> None:
            try:
                for link in wanted[lane::_LANES]:
                    answers[link] = self._find(link, lane, is_repeated=False)
            except BmcError:
                self._has_enough = True

        if len(wanted) > 1 and self._exchange.took >= _SOON and not self._has_enough:
            with ThreadPoolExecutor(_LANES) as pool:
                list(pool.map(read, range(_LANES)))
        self._ahead.update(answers)
        return answers

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
            return self._sent(method, link, body, etag)

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
        clock.sleep(max(0.0, min(_SETTLE, self._exchange.left / 4)))

    def _logged_in(self, ask: Callable[[], _Answered]) -> _Answered:
        """What ``ask`` answers; where the BMC knows us no more, after one more login."""
        try:
            return ask()
        except LoggedOut:
            if not self._may_log_in_again:
                raise
        self._may_log_in_again = False
        self._session.open(self.root, self.get)
        return ask()

    def _find(self, link: str, lane: int = 0, is_repeated: bool = True) -> Answer | None:
        for pause in (*(self._exchange.pauses if is_repeated else ()), None):
            try:
                answer, body = self._exchange.read(link, lane)
            except NetError as error:
                self._exchange.pause(broken(error), pause)
                continue
            if answer.status in (404, 410):
                return None
            data = self._exchange.parsed(body)
            if answer.status < 300:
                if not isinstance(data, dict):
                    begun = self.without_secrets(body[:MAX_TEXT].decode(errors="replace"))
                    what = f"is no JSON object: {said(begun, _SHOWN)!r}"
                    raise BmcError("garbage", f"{said(answer.link)} {what}")
                if not errors_of(data):
                    return replace(answer, data=data)
            self._exchange.pause(refusal("GET", answer, data), pause, answer.retry_after)
        raise AssertionError("the last pause is None")

    def _sent(
        self, method: str, link: str, body: Mapping[str, object] | None, etag: str | None
    ) -> Answer:
        answer, raw = self._exchange.send(method, link, body, etag)
        if answer.status == 412:
            raise Outdated(f"{said(link)} changed in between")
        data = self._exchange.parsed(raw)
        if answer.status < 300 and not errors_of(data):
            return replace(answer, data=data) if isinstance(data, dict) else answer
        problem = refusal(method, answer, data)
        # Whatever stands before a BMC may answer 503 after the BMC acted; a message is its own. An
        # error that calls itself a success may have done a part.
        if not 300 <= answer.status < 500 and not says_later(data):
            raise Lost(str(problem))
        raise problem


class Session:
    """Logs in over an exchange, whose headers and secrets it sets.

    Each login is tried inside of ``turn``; what that waits counts for nothing.
    """

    def __init__(
        self, exchange: Exchange, login: Login, turn: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._exchange, self._login, self._turn = exchange, login, turn
        # Links by their tokens.
        self._sessions: dict[str, str] = {}
        exchange.secrets.append(login.password)

    def open(self, root: Mapping[str, object], read: Callable[[str], object]) -> None:
        """Log in; ``read`` reads a link, for a BMC that has no sessions.

        BmcError where the BMC does not take the login, or is too busy for it.
        """
        self._exchange.headers.pop("X-Auth-Token", None)
        began = clock.monotonic()
        with self._turn():
            self._exchange.extend(clock.monotonic() - began)
            links = at(root, "Links") or at(root, "links")
            sessions = link_at(links, "Sessions")
            if sessions and self._open_session(sessions):
                return
            pair = f"{self._login.username}:{self._login.password}".encode()
            basic = base64.b64encode(pair).decode()
            self._exchange.secrets.append(basic)
            self._exchange.headers["Authorization"] = f"Basic {basic}"
            # Only what may not be read by everybody shows whether the BMC takes them.
            read(link_at(root, "Systems"))

    def close(self) -> None:
        """End all that was opened; a session that cannot be ended ends by itself."""
        # Each in its own name: after a restart a BMC may have given an old link to somebody.
        for token, session in self._sessions.items():
            self._exchange.headers["X-Auth-Token"] = token
            with suppress(BmcError):
                self._exchange.send("DELETE", session)

    def _open_session(self, sessions: str) -> bool:
        """False where the BMC has none to open (405). One that has no room has it soon.

        The answer is waited for as long as there is time: it alone tells which session to end, and
        a login is not repeated.
        """
        exchange = self._exchange
        body = {"UserName": self._login.username, "Password": self._login.password}
        for pause in (*exchange.pauses, None):
            try:
                answer, raw = exchange.send("POST", sessions, body, share=1.0)
            except Lost as error:
                left = "; a session may be left there until it ends by itself"
                raise BmcError("unreachable", f"{error}{left}") from None
            if answer.status == 405:
                return False
            data = exchange.parsed(raw)
            token = answer.headers.get("x-auth-token", "")
            if answer.status < 300 and token:
                exchange.headers["X-Auth-Token"] = token
                exchange.secrets.append(token)
                self._sessions[token] = exchange.location(answer) or link_at(data)
                return True
            if answer.status < 300 and not errors_of(data):
                raise BmcError("garbage", "opened a session without a token")
            problem = refusal("POST", answer, data)
            if answer.status >= 500:
                problem = BmcError("busy", str(problem))
            exchange.pause(problem, pause, answer.retry_after)
        raise AssertionError("the last pause is None")
