# SPDX-License-Identifier: Apache-2.0
"""HAProxy: the one that is installed, and the one of the simulated lab, which answers as recorded.

Both are asked over a line that a test can cut.
"""

from __future__ import annotations

import csv
import shutil
import socket
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Callable

from lab.simulated.balancer import Balancer, Server
from tests.support.answering import Answering
from tests.support.load_balancers import SERVERS, Start, TestBalancer
from tests.support.named_services import Service, hold, services, who_gets
from tests.support.real_haproxy import CLIENTS, RealHaproxy, running


class _OverALine(TestBalancer):
    def __init__(self) -> None:
        self._share, self._denies = 1.0, False
        self._line = Answering(self._say)
        self._is_cut = False
        self.fields = {"address": f"tcp://127.0.0.1:{self._line.port}", "backend": "edges"}

    @abstractmethod
    def answer(self, line: str, may_change: bool) -> str: ...

    def _say(self, sock: socket.socket, asked: str) -> None:
        answer = self.answer(asked, not self._denies).encode()
        sock.sendall(answer[: int(self._share * len(answer))])

    def cut_answers(self, share: float) -> None:
        self._share = share

    def deny_changes(self) -> None:
        self._denies = True

    def go_away(self) -> None:
        if not self._is_cut:
            self._line.close()
        self._is_cut = True

    close = go_away


class Simulated(_OverALine):
    def __init__(self) -> None:
        self._balancer = Balancer([Server(name, "127.0.0.1", up=True) for name in SERVERS])
        super().__init__()

    def answer(self, line: str, may_change: bool) -> str:
        if line.startswith("set ") and not may_change:
            return "Permission denied\n\n"
        return "".join(f"{self._balancer.answer(command)}\n" for command in line.split(";"))

    def sends_to(self, server: str) -> bool:
        return self._balancer.servers[server].in_service

    def withdraw_by_hand(self, server: str) -> None:
        self._balancer.servers[server].state = "drain"

    def open_session(self, server: str) -> None:
        self._balancer.load = 1.0

    def end_sessions(self) -> None:
        self._balancer.load = 0.0


class TwoSimulated(TestBalancer):
    """Clients come to both; what happens to one alone happens to the second."""

    def __init__(self) -> None:
        self.both = (Simulated(), Simulated())
        addresses = [own.fields["address"] for own in self.both]
        self.fields = {"address": addresses, "backend": "edges"}

    def sends_to(self, server: str) -> bool:
        return any(own.sends_to(server) for own in self.both)

    def withdraw_by_hand(self, server: str) -> None:
        for own in self.both:
            own.withdraw_by_hand(server)

    def open_session(self, server: str) -> None:
        self.both[1].open_session(server)

    def end_sessions(self) -> None:
        self.both[1].end_sessions()

    def cut_answers(self, share: float) -> None:
        self.both[1].cut_answers(share)

    def deny_changes(self) -> None:
        for own in self.both:
            own.deny_changes()

    def go_away(self) -> None:
        self.both[1].go_away()

    def close(self) -> None:
        for own in self.both:
            own.go_away()


class Real(_OverALine):
    """Its servers answer with their names, and get as many requests as it takes to see which do."""

    def __init__(self, haproxy: RealHaproxy, behind: Mapping[str, Service]) -> None:
        self._haproxy, self._behind = haproxy, behind
        self._clients = haproxy.folder / "clients"
        super().__init__()

    def answer(self, line: str, may_change: bool) -> str:
        return self._haproxy.ask(line, "admin" if may_change else "operator")

    def sends_to(self, server: str) -> bool:
        return server in who_gets(self._clients, SERVERS)

    def withdraw_by_hand(self, server: str) -> None:
        self._haproxy.ask(f"set server edges/{server} state drain")

    def starve(self, server: str) -> Callable[[], None]:
        def weigh(weight: str) -> None:
            assert self._haproxy.ask(f"set server edges/{server} weight {weight}") == "\n"

        weigh("0")
        return lambda: weigh("100%")

    def open_session(self, server: str) -> None:
        hold(self._clients, f"/held/{server}")
        self._wait(server, "1")

    def end_sessions(self) -> None:
        for server in SERVERS:
            self._behind[server].release.set()
            self._wait(server, "0")

    def _wait(self, server: str, sessions: str) -> None:
        while self._row(server)["scur"] != sessions:
            time.sleep(0.01)

    def _row(self, server: str) -> dict[str, str]:
        rows = csv.DictReader(self._haproxy.ask("show stat -1 4 -1")[2:].splitlines())
        return next(row for row in rows if (row["pxname"], row["svname"]) == ("edges", server))


@contextmanager
def _real() -> Iterator[Real]:
    with services(dict.fromkeys(SERVERS, "127.0.0.1")) as behind:
        chosen = [f"use-server {name} if {{ path /held/{name} }}" for name in SERVERS]
        servers = [f"server {name} {behind[name].place}" for name in SERVERS]
        with (
            running([("edges", [*chosen, *servers])], CLIENTS) as haproxy,
            closing(Real(haproxy, behind)) as started,
        ):
            yield started


LOAD_BALANCERS: dict[str, Start] = {
    "simulated": lambda: closing(Simulated()),
    "two-simulated": lambda: closing(TwoSimulated()),
}
if shutil.which("haproxy"):
    LOAD_BALANCERS["real"] = _real
