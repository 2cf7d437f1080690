# SPDX-License-Identifier: Apache-2.0
"""How early the kernel begins to free memory."""

import time
from typing import Iterator

from edgetune.agent.kinds.sysctl import Sysctl
from edgetune.agent.protocol import Failed
from edgetune.agent.vocabulary.kinds.memory_watermarks import KIND, key_of
from edgetune.agent.vocabulary.values import Target, Value

PAUSE = 0.2
"""Seconds between two steps, in which the kernel frees what the last one asked for."""


class MemoryWatermarks(Sysctl):
    """The free memory below which the kernel frees more; raised in steps.

    A watermark that jumps makes every allocation at that moment free memory itself.
    """

    kind = KIND
    # No tuning has a dot in its name, so no other's drop-in is called like this.
    drop_in = "/etc/sysctl.d/90-edgetune-{rank}.watermarks.conf"

    @classmethod
    def key(cls, target: Target) -> str:
        return key_of(target)

    def apply(self, target: Target, value: Value) -> None:
        """Step by step, each read back; down in one step, which asks nothing of anybody."""
        for step in steps(int(str(self.runtime(target))), int(str(value))):
            super().apply(target, str(step))
            now = self.runtime(target)
            if now != str(step):
                raise Failed(f"reads {now} after {step} was written")
            if step != int(str(value)):
                time.sleep(PAUSE)


def steps(now: int, wanted: int) -> Iterator[int]:
    """The numbers on the way up, each at most twice the one before, and the one wanted."""
    while 0 < now * 2 < wanted:
        now *= 2
        yield now
    yield wanted
