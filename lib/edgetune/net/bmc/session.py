# SPDX-License-Identifier: Apache-2.0
"""The login at a BMC: a session (DMTF DSP0266, 13.3), or HTTP Basic where a BMC has none."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from typing import Callable

from edgetune.base import clock
from edgetune.net.bmc.answers import Lost, refusal
from edgetune.net.bmc.credentials import Login
from edgetune.net.bmc.exchange import Exchange
from edgetune.net.bmc.payload import BmcError, at, errors_of, link_at


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
