# SPDX-License-Identifier: Apache-2.0
"""The clocks that tests hand in: a sleep takes no time, and all clocks have passed it."""

from __future__ import annotations

import math
import time
from typing import Callable

from edgetune.base.clock import Clock


class VirtualClock(Clock):
    """Goes on by what is slept, after which ``then`` happens, and by 0.1 ms a ``look``: on a busy
    machine no span is longer."""

    def __init__(self, at: float | None = None, look: float = 1e-4) -> None:
        self.passed, self.look = 0.0, look
        self.then: Callable[[], object] = lambda: None
        self._epoch = time.time() if at is None else at
        self._began = math.ceil(time.monotonic())
        super().__init__()

    def wall(self) -> float:
        return self._epoch + self._looked()

    def monotonic(self) -> float:
        return self._began + self._looked()

    uptime = monotonic

    def sleep(self, seconds: float) -> None:
        self.wait(seconds)
        self.then()

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.passed += max(0.0, seconds)

    def set(self, seconds: float) -> None:
        """The wall clock is set by so many seconds, while a process is running."""
        self._epoch += seconds

    def set_to(self, moment: float) -> None:
        self._epoch = moment - self.passed

    def begin_process(self, boot: str = "") -> None:
        """What runs next is another process, with ``boot`` one of another boot or machine."""
        self.boot_began = self.wall() - self.uptime()
        self.boot = boot or self.boot

    def _looked(self) -> float:
        self.wait(self.look)
        return self.passed


class RunningClock(VirtualClock):
    """Spans of the machine count, too, for peers that are waited for indeed; the moment stands."""

    def __init__(self, at: float | None = None) -> None:
        super().__init__(at, look=0.0)

    def monotonic(self) -> float:
        return time.monotonic() + self.passed

    uptime = monotonic
