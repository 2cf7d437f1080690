# SPDX-License-Identifier: Apache-2.0
"""Where PoPs and hosts are written down: a source of the inventory for each way to keep it.

Each file is one, named as in ``inventory_source`` of the configuration; its ``INVENTORY`` is the
class. What they share stands in files whose names begin with an underscore.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from edgetune.config import Config
from edgetune.fields import Fields
from edgetune.inventories._reading import read_pop
from edgetune.inventory import Inventory

__all__ = ["INVENTORIES", "inventory_class", "open_inventory", "read_pop", "source_of"]

INVENTORIES = tuple(sorted(file.stem for file in Path(__file__).parent.glob("[!_]*.py")))
"""The names of all sources."""


def inventory_class(name: str) -> type[Inventory]:
    """The class of one of INVENTORIES."""
    found: type[Inventory] = import_module(f"edgetune.inventories.{name}").INVENTORY
    return found


def source_of(config: Config) -> type[Inventory]:
    """The class that the option ``inventory_source`` names; InputError where it is none."""
    option = "inventory_source"
    chosen = Fields({option: config.inventory_source}, "configuration")
    return inventory_class(chosen.text(option, choices=INVENTORIES))


def open_inventory(config: Config) -> Inventory:
    """The inventory of a configuration; InputError names the option, or its source and field."""
    made: Any = source_of(config)
    inventory: Inventory = made(config.inventory)
    return inventory
