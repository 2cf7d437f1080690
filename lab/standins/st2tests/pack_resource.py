# SPDX-License-Identifier: Apache-2.0
"""What the base classes share: the pack is the folder above that of the test file."""

from __future__ import annotations

import inspect
from pathlib import Path
from unittest import TestCase

__all__ = ["BasePackResourceTestCase"]


class BasePackResourceTestCase(TestCase):
    """Finds the pack's files."""

    def get_fixture_content(self, fixture_path: str) -> str:
        """Text of a file below tests/fixtures."""
        file = Path(self._get_base_pack_path()) / "tests" / "fixtures" / fixture_path
        return file.read_text(encoding="utf-8")

    def _get_base_pack_path(self) -> str:
        return str(Path(inspect.getfile(type(self))).resolve().parent.parent)
