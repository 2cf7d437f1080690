# SPDX-License-Identifier: Apache-2.0
"""Taking hosts out of traffic: a driver for each kind of load balancer."""

from __future__ import annotations

from edgetune.inventory import LoadBalancer
from edgetune.traffic.driver import DrainDriver, Server
from edgetune.traffic.haproxy import Haproxy

__all__ = ["DrainDriver", "Server", "driver_for"]

_DRIVERS = {"haproxy": Haproxy}


def driver_for(balancer: LoadBalancer) -> DrainDriver:
    """The driver that the inventory names."""
    return _DRIVERS[balancer.driver](balancer)
