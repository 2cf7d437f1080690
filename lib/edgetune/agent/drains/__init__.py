# SPDX-License-Identifier: Apache-2.0
"""What a host does to get no requests: a file here for each way, named as the drain driver is."""

from importlib import import_module

from edgetune.agent.drains.base import Drain
from edgetune.agent.host import Host
from edgetune.agent.protocol import Request

DRAINS = ("bird", "flag")


def open_drain(host: Host, name: str, fields: Request) -> Drain:
    """One of DRAINS, with what the inventory has for it; BadRequest names a wrong field."""
    # A way that is not asked for is not compiled.
    made: Drain = import_module(f"edgetune.agent.drains.{name}").DRAIN(host, fields)
    fields.done()
    return made
