# SPDX-License-Identifier: Apache-2.0
"""Sleeps that work below faketime; Python imports this file by its name at its start.

Until 0.9.10 faketime takes a moment of the monotonic clock, which it leaves alone when told so, for
one of the day that it makes up, and Python sleeps until such a moment: each sleep is refused.
"""

from __future__ import annotations

import select
import time


def _sleep(seconds: float) -> None:
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


time.sleep = _sleep
