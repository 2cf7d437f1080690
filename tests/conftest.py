# SPDX-License-Identifier: Apache-2.0
"""Puts the pack on the path as StackStorm does, and stand-ins for StackStorm behind all else."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

for place in (ROOT, ROOT / "actions", ROOT / "sensors", ROOT / "lib"):
    sys.path.insert(0, str(place))
sys.path.append(str(ROOT / "lab" / "standins"))
