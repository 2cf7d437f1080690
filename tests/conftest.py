# SPDX-License-Identifier: Apache-2.0
"""Puts the pack on the path as StackStorm does, and stand-ins for StackStorm behind all else."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

for place in (ROOT, ROOT / "actions", ROOT / "sensors", ROOT / "lib"):
    sys.path.insert(0, str(place))
sys.path.append(str(ROOT / "lab" / "standins"))

# StackStorm's test classes patch sockets and threads for eventlet as they are imported; actions
# are never patched, and tests that start threads and processes would hang.
with contextlib.suppress(ImportError):
    from st2common.util import monkey_patch

    monkey_patch.monkey_patch = lambda patch_thread=None: None
