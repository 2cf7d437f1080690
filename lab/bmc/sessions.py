# SPDX-License-Identifier: Apache-2.0
"""The small session table of a BMC."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Callable

from .messages import Refused


@dataclass
class Session:
    id: str
    user: str
    used: float
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)


class Sessions:
    """At most `limit` at once; one that is not used for `seconds` is forgotten."""

    def __init__(self, limit: int, seconds: float, clock: Callable[[], float]) -> None:
        self.limit = limit
        self.seconds = seconds
        self._clock = clock
        self._made = 0
        self._sessions: dict[str, Session] = {}

    def open(self, user: str) -> Session:
        self._forget()
        if len(self._sessions) >= self.limit:
            raise Refused("session_limit")
        self._made += 1
        session = Session(f"{self._made}", user, self._clock())
        self._sessions[session.id] = session
        return session

    def knows(self, token: str) -> bool:
        """Whether somebody is logged in with it; that counts as use."""
        self._forget()
        for session in self._sessions.values():
            if secrets.compare_digest(session.token.encode(), token.encode()):
                session.used = self._clock()
                return True
        return False

    def get(self, identity: str) -> Session | None:
        self._forget()
        return self._sessions.get(identity)

    def close(self, identity: str) -> None:
        self._sessions.pop(identity, None)

    def ids(self) -> list[str]:
        self._forget()
        return list(self._sessions)

    def _forget(self) -> None:
        oldest = self._clock() - self.seconds
        for session in list(self._sessions.values()):
            if session.used < oldest:
                del self._sessions[session.id]
