# SPDX-License-Identifier: Apache-2.0
"""A sleep of a test takes no time, and all clocks have passed it."""

from __future__ import annotations

import time

import pytest

from edgetune import steady_clock

_LOOK = 1e-4


class VirtualClock:
    """The clocks of this process. They go on by what is slept, and by 0.1 ms a look: on a busy
    machine no span is longer."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.passed = 0.0
        for module, name in ((time, "time"), (time, "monotonic"), (steady_clock, "uptime")):
            began = getattr(module, name)()
            patch.setattr(module, name, lambda began=began: began + self._looked())
        patch.setattr(time, "sleep", self.wait)

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.passed += max(0.0, seconds)

    def _looked(self) -> float:
        self.wait(_LOOK)
        return self.passed
