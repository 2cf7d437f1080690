# SPDX-License-Identifier: Apache-2.0
"""Drivers for hosts that steer their own traffic: each host is asked over SSH, by its agent.

The state lives on the hosts, so every action runner sees it, and a reboot has to leave it alone.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Protocol

from edgetune.base.dataclass import dataclass
from edgetune.base.durations import read_duration
from edgetune.base.errors import DrainError, ServerError
from edgetune.net.traffic.driver import DrainDriver, Server


@dataclass(frozen=True)
class Order:
    """What hosts are asked: to ``do`` look, withdraw, isolate or restore, ``by`` a way of the
    agent's (``hosts.agent.drains``) with its ``fields``. A host obeys no ``epoch`` older than one
    that it has seen; a look needs none."""

    by: str
    fields: Mapping[str, object]
    do: str = "look"
    withdrawn: str = ""
    epoch: int = 0


@dataclass(frozen=True)
class Answer:
    """How a host stands, and why it would refuse a change, or "".

    With ``error`` it did not answer, or did not do it; ``server`` is ``unknown`` then.
    """

    server: Server
    refuses: str = ""
    error: str = ""


class Agents(Protocol):
    """The way to the hosts of a PoP, by the names of their servers."""

    @property
    @abstractmethod
    def servers(self) -> Sequence[str]:
        """Names of all servers."""

    @abstractmethod
    def ask(self, servers: Sequence[str], order: Order) -> Mapping[str, Answer]:
        """What each of them answers, within a deadline; failures are data, not exceptions."""


def same_duration(text: str) -> str:
    """All spellings of a duration as one text, for `Field`."""
    return f"{read_duration(text):g}s"


class OnHosts(DrainDriver):
    """What these drivers have in common; ``by`` is the way of the agent."""

    by: ClassVar[str]

    def __init__(self, agents: Agents, sent: Mapping[str, object]) -> None:
        """``sent`` are the fields as the agent reads them."""
        self._agents, self._sent = agents, sent
        self._epoch = 0

    def under(self, epoch: int) -> DrainDriver:
        driver = copy.copy(self)
        driver._epoch = epoch
        return driver

    def servers(self) -> Mapping[str, Server]:
        return {name: answer.server for name, answer in self._look().items()}

    def withdraw(self, server: str) -> None:
        self._do("withdraw", server)

    def isolate(self, server: str) -> None:
        self._do("isolate", server)

    def restore(self, server: str, withdrawn: str = "") -> None:
        self._do("restore", server, withdrawn)

    def refuses_changes(self) -> str:
        """Hosts that do not answer are reported elsewhere, and may be left out."""
        return self.refuses_changes_of(self._agents.servers)

    def refuses_changes_of(self, servers: Collection[str]) -> str:
        refusing = [(name, host.refuses) for name, host in self._look().items() if name in servers]
        refusals = [f"{name}: {why}" for name, why in refusing if why]
        more = f"; and {len(refusals) - 3} more" if len(refusals) > 3 else ""
        return "; ".join(refusals[:3]) + more

    def _look(self) -> Mapping[str, Answer]:
        answers = self._agents.ask(self._agents.servers, Order(self.by, self._sent))
        if answers and all(each.error for each in answers.values()):
            name, first = next(iter(answers.items()))
            raise DrainError(f"none of {len(answers)} hosts answers; {name}: {first.error}")
        return answers

    def _do(self, do: str, server: str, withdrawn: str = "") -> None:
        if server not in self._agents.servers:
            raise DrainError(f"there is no server {server!r}")
        order = Order(self.by, self._sent, do, withdrawn, self._epoch)
        answer = self._agents.ask([server], order)[server]
        if answer.error:
            # It may have been done, and its answer lost: each order is the same on a second call.
            again = self._agents.ask([server], order)[server]
            answer = answer if again.error else again
        how = answer.server.withdrawn
        done = how == withdrawn if do == "restore" else bool(how)
        problem = answer.error or ("" if done else f"it is {how or 'in service'} then")
        if problem:
            asked = f"{do} {withdrawn}".rstrip()
            raise ServerError(f"{server}: {asked}: {problem}")
