# SPDX-License-Identifier: Apache-2.0
"""Where PoPs and hosts are written down: a source of the inventory for each way to keep it.

Each file is one, named as in ``inventory_source`` of the configuration; its ``INVENTORY`` is the
class. What they share stands in files whose names begin with an underscore.
"""

from __future__ import annotations

from typing import Any

from edgetune.base.fields import Fields
from edgetune.base.plugins import Plugins
from edgetune.net.inventories._reading import read_pop
from edgetune.site.config import Config
from edgetune.site.inventory import Inventory

__all__ = ["INVENTORIES", "open_inventory", "read_pop", "source_of"]

INVENTORIES = Plugins[type[Inventory]](__name__, "INVENTORY")
"""The classes of all sources."""


def source_of(config: Config) -> type[Inventory]:
    """The class that the option ``inventory_source`` names; InputError where it is none."""
    option = "inventory_source"
    chosen = Fields({option: config.inventory_source}, "configuration")
    return INVENTORIES[chosen.text(option, choices=INVENTORIES)]


def open_inventory(config: Config) -> Inventory:
    """The inventory of a configuration; InputError names the option, or its source and field."""
    made: Any = source_of(config)
    inventory: Inventory = made(config.inventory)
    return inventory
