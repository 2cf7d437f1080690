# SPDX-License-Identifier: Apache-2.0
"""Taking hosts out of traffic: a driver for each kind of load balancer.

Each file of ``drivers`` is one, named as in the inventory; its ``DRIVER`` is the class. This room
knows no inventory: the inventory asks the drivers which fields a load balancer has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from edgetune.plugins import Plugins
from edgetune.traffic.driver import DrainDriver, Server
from edgetune.traffic.on_hosts import Agents, OnHosts

__all__ = ["DRIVERS", "DrainDriver", "Server", "is_on_hosts", "open_driver"]

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
    """Whether with one of DRIVERS each host steers its own traffic: no PoP shares a server then."""
    return issubclass(DRIVERS[name], OnHosts)
