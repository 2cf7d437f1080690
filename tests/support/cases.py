# SPDX-License-Identifier: Apache-2.0
"""Cases as data: a YAML file of one mapping for each case, whose name is a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml


def cases(file: Path) -> list[Any]:
    """The cases of a file as parameters of a test: ``{sentence: {field: value}}``."""
    loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    return [pytest.param(case, id=name) for name, case in loaded.items()]
