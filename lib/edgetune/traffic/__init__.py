# SPDX-License-Identifier: Apache-2.0
"""Taking hosts out of traffic: a driver for each kind of load balancer.

Each file of ``drivers`` is one, named as in the inventory; its ``DRIVER`` is the class. This room
knows no inventory: the inventory asks the drivers which fields a load balancer has.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Callable

from edgetune.traffic.driver import DrainDriver, Server
from edgetune.traffic.on_hosts import Agents, OnHosts

__all__ = ["DRIVERS", "DrainDriver", "Server", "driver_class", "is_on_hosts", "open_driver"]

DRIVERS = tuple(sorted(file.stem for file in Path(__file__).parent.glob("drivers/[!_]*.py")))
"""The names of all drivers."""


def driver_class(name: str) -> type[DrainDriver]:
    """The class of one of DRIVERS."""
    found: type[DrainDriver] = import_module(f"edgetune.traffic.drivers.{name}").DRIVER
    return found


def open_driver(name: str, fields: Mapping[str, str], agents: Callable[[], Agents]) -> DrainDriver:
    """A driver for one load balancer, by the ``fields`` of its entry in the inventory.

    ``agents`` opens the way to the hosts of the PoP, for a driver that asks them.
    """
    made: Any = driver_class(name)
    driver: DrainDriver = made(agents(), **fields) if is_on_hosts(name) else made(**fields)
    return driver


def is_on_hosts(name: str) -> bool:
    """Whether with one of DRIVERS each host steers its own traffic: no PoP shares a server then."""
    return issubclass(driver_class(name), OnHosts)
