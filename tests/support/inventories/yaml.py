# SPDX-License-Identifier: Apache-2.0
"""A YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Callable

from tests.support.builders import write_yaml
from tests.support.inventories import Begin, TestInventory


class File(TestInventory):
    def __init__(self, folder: Path) -> None:
        self.path = folder / "inventory.yaml"

    def keep(self, pops: Mapping[str, Any]) -> None:
        write_yaml(self.path, {"pops": dict(pops)})

    def damages(self) -> Mapping[str, Callable[[], None]]:
        return {
            "gone": self.path.unlink,
            "no PoPs": lambda: self._write("hosts: {}\n"),
            "no YAML": lambda: self._write("pops: {lab1: "),
            "no text": lambda: self._write("\udcff"),
        }

    def _write(self, text: str) -> None:
        self.path.write_text(text, encoding="utf-8", errors="surrogateescape")


KEPT: Mapping[str, Begin] = {"file": lambda folder: nullcontext(File(folder))}
