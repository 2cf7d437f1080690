# SPDX-License-Identifier: Apache-2.0
"""Taking hosts out of traffic: a driver for each kind of load balancer.

Each file of ``drivers`` is one, named as in the inventory; its ``DRIVER`` is the class. This room
knows no inventory: the inventory asks the drivers which fields a load balancer has.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from edgetune.traffic.driver import DrainDriver, Server

__all__ = ["DRIVERS", "DrainDriver", "Server", "driver_class", "open_driver"]

DRIVERS = tuple(sorted(file.stem for file in Path(__file__).parent.glob("drivers/[!_]*.py")))
"""The names of all drivers."""


def driver_class(name: str) -> type[DrainDriver]:
    """The class of one of DRIVERS."""
    found: type[DrainDriver] = import_module(f"edgetune.traffic.drivers.{name}").DRIVER
    return found


def open_driver(name: str, fields: Mapping[str, str]) -> DrainDriver:
    """A driver for one load balancer, by the ``fields`` of its entry in the inventory."""
    made: Any = driver_class(name)
    driver: DrainDriver = made(**fields)
    return driver
