# SPDX-License-Identifier: Apache-2.0
"""An inventory in one YAML file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from edgetune import __version__
from edgetune.base.fields import Fields
from edgetune.base.files import Load, load_yaml
from edgetune.net.inventories._layers import Layers
from edgetune.net.inventories._reading import WholeInventory


class YamlInventory(WholeInventory):
    """``pops`` of one YAML file, with the ``defaults`` and ``groups`` that they share."""

    def __init__(self, path: Path) -> None:
        before = digest_of_file(path)
        self.read(path, load_yaml)
        # Somebody may have written it in between.
        self.file = before if before == digest_of_file(path) else ""

    def read(self, path: Path, load: Load) -> None:
        """Take all of it from there; InputError names the field."""
        top = Fields(load(path), str(path))
        top.raw("pops")
        layers = Layers(top, str(path))
        top.done()
        super().__init__(str(path), layers.entries, layers.place)


def digest_of_file(path: Path, least: int = 0) -> str:
    """Of its bytes and of the version that reads them; empty where there are fewer than ``least``,
    or it cannot be read."""
    try:
        read = Path(path).read_bytes() if Path(path).stat().st_size >= least else b""
    except OSError:
        read = b""
    return hashlib.sha256(__version__.encode() + b"\n" + read).hexdigest() if read else ""


INVENTORY = YamlInventory
