# SPDX-License-Identifier: Apache-2.0
"""An inventory in one YAML file."""

from __future__ import annotations

from pathlib import Path

from edgetune.base.fields import Fields
from edgetune.base.files import load_yaml
from edgetune.net.inventories._layers import Layers
from edgetune.net.inventories._reading import WholeInventory


class YamlInventory(WholeInventory):
    """``pops`` of one YAML file, with the ``defaults`` and ``groups`` that they share."""

    def __init__(self, path: Path) -> None:
        top = Fields(load_yaml(path), str(path))
        top.raw("pops")
        layers = Layers(top, str(path))
        top.done()
        super().__init__(str(path), layers.entries, layers.place)


INVENTORY = YamlInventory
