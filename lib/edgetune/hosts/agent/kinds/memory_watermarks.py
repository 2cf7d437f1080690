# SPDX-License-Identifier: Apache-2.0
"""How early the kernel begins to free memory."""

import time
from typing import Iterator

from edgetune.hosts.agent.kinds.min_free import LEAST
from edgetune.hosts.agent.kinds.sysctl import Sysctl
from edgetune.hosts.agent.protocol import Failed, Fields
from edgetune.hosts.agent.values import Target, Value

PAUSE = 0.2
"""Seconds between two steps, in which the kernel frees what the last one asked for."""
BOUNDS = {
    "min_free_kbytes": (LEAST, 2**31 - 1),
    "watermark_scale_factor": (1, 3000),
    "watermark_boost_factor": (0, 2**31 - 1),
}


class MemoryWatermarks(Sysctl):
    """The free memory below which the kernel frees more; raised in steps.

    A watermark that jumps makes every allocation at that moment free memory itself.
    """

    name = "memory.watermarks"
    target = {"parameter": "|".join(BOUNDS)}
    # No tuning has a dot in its name, so no other's drop-in is called like this.
    drop_in = "/etc/sysctl.d/90-edgetune-{rank}.watermarks.conf"

    @classmethod
    def key(cls, target: Target) -> str:
        return f"vm.{target['parameter']}"

    @classmethod
    def check_value(cls, fields: Fields) -> Value:
        """A whole number: kB for min_free_kbytes, hundredths of a per cent for the others."""
        low, high = BOUNDS.get(str(fields.inside("target").raw("parameter")), (0, 0))
        number = int(fields.text("value", r"[0-9]{1,10}"))
        if not low <= number <= high:
            raise fields.wrong("value", f"must be from {low} to {high}")
        return str(number)

    def apply(self, target: Target, value: Value) -> None:
        """Step by step, each read back; down in one step, which asks nothing of anybody."""
        for step in steps(int(str(self.runtime(target))), int(str(value))):
            super().apply(target, str(step))
            found = self.runtime(target)
            if found != str(step):
                raise Failed(f"reads {found} after {step} was written")
            if step != int(str(value)):
                time.sleep(PAUSE)


def steps(now: int, wanted: int) -> Iterator[int]:
    """The numbers on the way up, each at most twice the one before, and the one wanted."""
    while 0 < now * 2 < wanted:
        now *= 2
        yield now
    yield wanted
