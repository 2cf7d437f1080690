# SPDX-License-Identifier: Apache-2.0
"""Taking hosts out of traffic: a driver for each kind of load balancer.

Each file of ``drivers`` is one, named as in the inventory; its ``DRIVER`` is the class.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Callable

from edgetune.base.plugins import Plugins
from edgetune.net.traffic.driver import DrainDriver, Server
from edgetune.net.traffic.on_hosts import Agents, OnHosts
from edgetune.site.inventory import LoadBalancer

__all__ = ["DRIVERS", "DrainDriver", "Server", "is_on_hosts", "open_driver", "places"]

DRIVERS = Plugins[type[DrainDriver]](f"{__name__}.drivers", "DRIVER")
"""The classes of all drivers."""


def open_driver(name: str, fields: Mapping[str, str], agents: Callable[[], Agents]) -> DrainDriver:
    """A driver for one load balancer, by the ``fields`` of its entry in the inventory.

    ``agents`` opens the way to the hosts of the PoP, for a driver that asks them.
    """
    made: Any = DRIVERS[name]
    driver: DrainDriver = made(agents(), **fields) if is_on_hosts(name) else made(**fields)
    return driver


def is_on_hosts(name: str) -> bool:
    """Whether with one of DRIVERS each host steers its traffic: no PoP shares a server then."""
    return issubclass(DRIVERS[name], OnHosts)


def places(balancer: LoadBalancer) -> list[tuple[str, ...]]:
    """Where its servers are; two entries that share one share load balancer and servers."""
    known = DRIVERS[balancer.driver].fields
    given = balancer.fields.items()
    named = [known[name].values(text) for name, text in given if known[name].identifies]
    return [(balancer.driver, *place) for place in itertools.product(*named)]
