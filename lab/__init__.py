# SPDX-License-Identifier: Apache-2.0
"""Development and demonstration: the local runner, and a PoP to practise on.

Nothing in `lib/edgetune` imports from here; `lab` reads the pack's files as StackStorm does.
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["CHECKOUT", "STANDINS", "use_standins"]

CHECKOUT = Path(__file__).resolve().parent.parent
STANDINS = CHECKOUT / "lab" / "standins"


def use_standins() -> None:
    """Put the stand-ins for StackStorm's names last on the path, so that a real StackStorm wins."""
    if str(STANDINS) not in sys.path:
        sys.path.append(str(STANDINS))
