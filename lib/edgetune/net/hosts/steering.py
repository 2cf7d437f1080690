# SPDX-License-Identifier: Apache-2.0
"""Asks hosts that steer their traffic themselves how they stand, for the drain drivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from edgetune.base.documents.host import Steered
from edgetune.net.result import HostResult
from edgetune.net.traffic import Server
from edgetune.net.traffic.on_hosts import Agents, Answer, Order
from edgetune.site.inventory import Host, Pop

if TYPE_CHECKING:
    from edgetune.net.hosts.fleet import Fleet

TIMEOUT = 20.0
"""Seconds for the agent of one host, from its start on."""
PATIENCE = 10.0
"""For so long a host that is to change and cannot be reached is asked again."""


class PopAgents(Agents):
    """The agents of a PoP."""

    def __init__(self, fleet: Fleet, pop: Pop) -> None:
        self._fleet, self._pop = fleet, pop

    @cached_property
    def _hosts(self) -> dict[str, Host]:
        return {host.server: host for host in self._pop.hosts}

    @property
    def servers(self) -> Sequence[str]:
        return list(self._hosts)

    def ask(self, servers: Sequence[str], order: Order) -> Mapping[str, Answer]:
        request = {**vars(order), "ports": list(self._pop.ports)}
        patience = 0.0 if order.do == "look" else PATIENCE
        hosts = [self._hosts[server] for server in servers]
        results = self._fleet.ask(hosts, "drain", lambda host: request, TIMEOUT, patience)
        return {host.server: read_steered(host.server, results[host.name]) for host in hosts}


def read_steered(server: str, result: HostResult) -> Answer:
    """What a host answers to ``drain``, or why nobody can tell how it stands."""
    if result.failed:
        error = str(result.error)
        lost = Server(server, "", False, None, checked=False, unknown=error, told_by_host=True)
        return Answer(lost, error=error)
    seen = result.read(Steered)
    return Answer(
        Server(
            server,
            seen.withdrawn,
            seen.up,
            seen.sessions,
            checked=False,
            leaving=seen.leaving,
            told_by_host=True,
        ),
        seen.refuses,
    )
