# SPDX-License-Identifier: Apache-2.0
"""A service on loopback that steers no traffic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Callable

from tests.support.load_balancers import Start, TestBalancer
from tests.support.load_balancers._hook import OUT, Hooked
from tests.support.prometheus_api import Api, Reply, api


class Served(TestBalancer):
    def __init__(self, server: Api) -> None:
        self.hooked, self._share, self._server = Hooked(), 1.0, server
        self.fields = {"url": server.url}
        server.answer = self.answer

    def answer(self, asked: Mapping[str, Any]) -> Reply:
        problem = ""
        if "do" in asked:
            words = (asked["do"], asked["server"], asked["withdrawn"], asked.get("weight"))
            problem = self.hooked.do(*words)
        body = json.dumps({"detail": problem} if problem else self.hooked.document()).encode()
        status = 403 if problem else 200
        return Reply(body[: int(self._share * len(body))], status)

    def sends_to(self, server: str) -> bool:
        return not self.hooked.withdrawn[server] and not self.hooked.idle[server]

    def starve(self, server: str) -> Callable[[], None]:
        self.hooked.idle[server] = "weight 0"
        return lambda: None

    def withdraw_by_hand(self, server: str) -> None:
        self.hooked.withdrawn[server] = OUT

    def open_session(self, server: str) -> None:
        self.hooked.sessions[server] = 1

    def end_sessions(self) -> None:
        self.hooked.sessions = dict.fromkeys(self.hooked.sessions, 0)

    def cut_answers(self, share: float) -> None:
        self._share = share

    def deny_changes(self) -> None:
        self.hooked.denies = True

    def go_away(self) -> None:
        self._server.answer = lambda asked: Reply(b"gone", 503)


@contextmanager
def _served() -> Iterator[TestBalancer]:
    with api() as server:
        yield Served(server)


LOAD_BALANCERS: dict[str, Start] = {"served": _served}
