# SPDX-License-Identifier: Apache-2.0
"""An inventory in one YAML file."""

from __future__ import annotations

from pathlib import Path

from edgetune.fields import Fields
from edgetune.files import load_yaml
from edgetune.inventories._reading import WholeInventory


class YamlInventory(WholeInventory):
    """The mapping ``pops`` of one YAML file."""

    def __init__(self, path: Path) -> None:
        top = Fields(load_yaml(path), str(path))
        pops = top.raw("pops")
        top.done()
        super().__init__(str(path), pops)


INVENTORY = YamlInventory
