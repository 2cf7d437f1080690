# SPDX-License-Identifier: Apache-2.0
"""Hosts that steer their own traffic: each is a directory, whose agent answers in this process."""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgetune.agent.dispatch import answer
from edgetune.base.errors import HostError
from edgetune.net.hosts.answers import read_answer
from edgetune.net.hosts.steering import read_steered
from edgetune.net.result import HostResult
from edgetune.net.traffic.on_hosts import Agents, Answer, Order
from tests.support.agent_root import AgentRoot
from tests.support.load_balancers import SERVERS, TestBalancer

PORT = 80
_HEAD = "  sl  local_address rem_address   st\n"
_OPEN = f"   0: 0100030A:{PORT:04X} 0200030A:D431 01\n"


class InProcess(Agents):
    """The agents of some roots; answers of ``silent`` hosts do not come, and all may be cut."""

    def __init__(self, roots: Mapping[str, AgentRoot]) -> None:
        self.roots = roots
        self.share = 1.0
        self.silent: set[str] = set()
        self.asked: list[tuple[str, str]] = []

    @property
    def servers(self) -> Sequence[str]:
        return list(self.roots)

    def ask(self, servers: Sequence[str], order: Order) -> Mapping[str, Answer]:
        return {name: read_steered(name, self._ask(name, order)) for name in servers}

    def _ask(self, name: str, order: Order) -> HostResult:
        self.asked.append((order.do, name))
        if name in self.silent:
            return HostResult(name, error="no route to host", reason="unreachable")
        self.roots[name].write("proc/uptime", f"{time.monotonic():.2f} 0.00\n")
        request = {"protocol": 1, "verb": "drain", **vars(order), "ports": [PORT]}
        reply = answer(str(self.roots[name].path), json.dumps(request).encode())
        raw = json.dumps(reply).encode() + b"\n"
        try:
            return read_answer(name, "drain", request, raw[: int(self.share * len(raw))])
        except HostError as error:
            return HostResult(name, error=f"answer to drain: {error}", reason="garbage")


class OnHosts(TestBalancer):
    """The part of a test balancer that is alike for all ways."""

    def __init__(self, folder: Path) -> None:
        self.roots = {name: AgentRoot(folder / name) for name in SERVERS}
        self.agents = InProcess(self.roots)

    @abstractmethod
    def sends_to(self, server: str) -> bool: ...

    def open_session(self, server: str) -> None:
        self.roots[server].write("proc/net/tcp", _HEAD + _OPEN)

    def end_sessions(self) -> None:
        for root in self.roots.values():
            root.write("proc/net/tcp", _HEAD)

    def cut_answers(self, share: float) -> None:
        self.agents.share = share

    def go_away(self) -> None:
        self.agents.silent = set(SERVERS)
