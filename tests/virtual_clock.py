# SPDX-License-Identifier: Apache-2.0
"""A sleep of a test takes no time, and all clocks have passed it."""

from __future__ import annotations

import time

import pytest

from edgetune import steady_clock


class VirtualClock:
    """The clocks of this process: the real ones, ahead by what was slept."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.passed = 0.0
        wall, monotonic, uptime = time.time, time.monotonic, steady_clock.uptime
        patch.setattr(time, "time", lambda: wall() + self.passed)
        patch.setattr(time, "monotonic", lambda: monotonic() + self.passed)
        patch.setattr(time, "sleep", self.wait)
        patch.setattr(steady_clock, "uptime", lambda: uptime() + self.passed)

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.passed += max(0.0, seconds)
