# SPDX-License-Identifier: Apache-2.0
"""Hosts that announce an address by BIRD: real ones that a router hears, and one in memory."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.support.birds import (
    CONSTANTS,
    GRACEFUL,
    HAS_BIRD,
    IN_SERVICE,
    PAIR,
    PLAIN,
    SOCKET,
    Before,
    Door,
    FakeBird,
    Router,
    ask,
    running_router,
)
from tests.support.load_balancers import SERVERS, Start, in_folder
from tests.support.load_balancers._on_hosts import OnHosts


class Announcing(OnHosts):
    """``doors`` are the control sockets of the hosts' BIRDs."""

    doors: dict[str, Door]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.fields = {"protocols": PAIR, "wait": "0.5s"}

    def deny_changes(self) -> None:
        for door in self.doors.values():
            door.denies = True


class InMemory(Announcing):
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder)
        self.birds: dict[str, FakeBird] = {}
        for name, root in self.roots.items():
            root.write(CONSTANTS, IN_SERVICE)
            self.birds[name] = FakeBird(root.path / SOCKET, root.path / CONSTANTS)
            stack.callback(self.birds[name].close)
        self.doors = {**self.birds}

    def sends_to(self, server: str) -> bool:
        state = self.birds[server].state
        return state[PLAIN] == "up" and state[GRACEFUL] == "down"

    def withdraw_by_hand(self, server: str) -> None:
        self.birds[server].state[PLAIN] = "down"


class Heard(Announcing):
    def __init__(self, folder: Path, router: Router, stack: ExitStack) -> None:
        super().__init__(folder)
        self.router = router
        self.doors = {}
        for name, root in self.roots.items():
            self.doors[name] = Before(root.path / SOCKET, router.sockets[name])
            stack.callback(self.doors[name].close)

    def sends_to(self, server: str) -> bool:
        return server in self.router.preferred()

    def withdraw_by_hand(self, server: str) -> None:
        ask(self.router.sockets[server], f"disable {PLAIN}")


def _heard(folder: Path, stack: ExitStack) -> Announcing:
    roots = {name: folder / name for name in SERVERS}
    return Heard(folder, stack.enter_context(running_router(folder, roots)), stack)


LOAD_BALANCERS: dict[str, Start] = {"script": in_folder(InMemory)}
if HAS_BIRD:
    LOAD_BALANCERS["real"] = in_folder(_heard)
