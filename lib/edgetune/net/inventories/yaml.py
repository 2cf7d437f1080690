# SPDX-License-Identifier: Apache-2.0
"""An inventory in one YAML file."""

from __future__ import annotations

from pathlib import Path

from edgetune.base.fields import Fields
from edgetune.base.files import Load, load_yaml
from edgetune.net.inventories._layers import Layers
from edgetune.net.inventories._reading import WholeInventory


class YamlInventory(WholeInventory):
    """``pops`` of one YAML file, with the ``defaults`` and ``groups`` that they share."""

    def __init__(self, path: Path) -> None:
        self.read(path, load_yaml)

    def read(self, path: Path, load: Load) -> None:
        """Take all of it from there; InputError names the field."""
        top = Fields(load(path), str(path))
        top.raw("pops")
        layers = Layers(top, str(path))
        top.done()
        super().__init__(str(path), layers.entries, layers.place)


INVENTORY = YamlInventory
